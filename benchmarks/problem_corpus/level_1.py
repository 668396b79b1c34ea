"""Single operators: products, convolutions, activations, norms, pooling, reductions, scans, losses, attention."""

ROWS = """
product_square | . | x @ y | 4096x4096 4096x4096
product_wide | . | torch.matmul(x, y) | 1024x8192 8192x2048
product_batched | . | torch.bmm(x, y) | 64x256x512 64x512x384
product_vector | . | x @ y | 512x131072 131072x1
product_scalar | . | x * 3.14 | 16384x4096
product_long_inner | . | torch.matmul(x, y) | 256x262144 262144x256
product_short_inner | . | torch.matmul(x, y) | 16384x32 32x16384
product_small | . | torch.matmul(x, y) | 256x256 256x256
product_tall_skinny | . | torch.matmul(x, y) | 32768x32 32x32768
product_4d | . | torch.einsum("bijl,lk->bijk", x, y) | 8x64x128x256 256x512
product_3d | . | torch.matmul(x, y) | 16x1024x2048 2048x768
product_diagonal | . | torch.diag(x) @ y | 4096 4096x4096
product_symmetric | . | torch.matmul(x + x.T, y + y.T) | 2048x2048 2048x2048
product_upper | . | torch.triu(torch.matmul(torch.triu(x), torch.triu(y))) | 2048x2048 2048x2048
product_lower | . | torch.tril(torch.matmul(torch.tril(x), torch.tril(y))) | 2048x2048 2048x2048
product_left_transposed | . | torch.matmul(x.T, y) | 4096x1024 4096x2048
product_right_transposed | . | torch.matmul(x, y.T) | 1024x4096 2048x4096
product_both_transposed | . | torch.matmul(x.T, y.T) | 4096x1024 2048x4096
linear_layer | op=nn.Linear(4096, 1000) | self.op(x) | 512x4096
bilinear_layer | op=nn.Bilinear(64, 96, 32) | self.op(x, y) | 128x64 128x96
relu | . | torch.relu(x) | 4096x16384
leaky_relu | op=nn.LeakyReLU(0.01) | self.op(x) | 4096x16384
sigmoid | . | torch.sigmoid(x) | 4096x16384
tanh | . | torch.tanh(x) | 4096x16384
softmax | . | torch.softmax(x, dim=1) | 4096x65536
log_softmax | . | torch.log_softmax(x, dim=1) | 4096x65536
swish | . | x * torch.sigmoid(x) | 4096x16384
gelu | . | F.gelu(x) | 4096x16384
gelu_written_out | . \
| 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0)))) | 8192x8192
selu | . | torch.selu(x) | 4096x16384
hard_sigmoid | . | F.hardsigmoid(x) | 4096x16384
softplus | . | F.softplus(x) | 4096x16384
softsign | . | x / (1 + torch.abs(x)) | 4096x16384
elu | . | F.elu(x, alpha=1.0) | 4096x16384
hard_tanh | . | F.hardtanh(x, min_val=-1.0, max_val=1.0) | 4096x16384
mish | . | F.mish(x) | 4096x16384
prelu | op=nn.PReLU(64) | self.op(x) | 64x64x128x128
batch_norm | op=nn.BatchNorm2d(64) | self.op(x) | 64x64x256x256
batch_norm_without_affine | op=nn.BatchNorm1d(256, affine=False) | self.op(x) | 1024x256
instance_norm | op=nn.InstanceNorm2d(64) | self.op(x) | 64x64x256x256
instance_norm_affine | op=nn.InstanceNorm1d(32, affine=True, track_running_stats=True) | self.op(x) | 16x32x4096
group_norm | op=nn.GroupNorm(8, 64) | self.op(x) | 64x64x256x256
rms_norm_written_out | . | x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + 1e-5) | 64x64x256x256
rms_norm_module | op=nn.RMSNorm(4096) | self.op(x) | 2048x4096
frobenius_norm | . | x / torch.norm(x, p="fro") | 64x64x256x256
norm_l1 | . | x / torch.mean(torch.abs(x), dim=1, keepdim=True) | 4096x65536
norm_l2 | . | x / torch.norm(x, p=2, dim=1, keepdim=True) | 4096x65536
normalize | . | F.normalize(x, p=3.0, dim=-1) | 4096x1024
layer_norm | op=nn.LayerNorm((64, 256, 256)) | self.op(x) | 16x64x256x256
local_response_norm | op=nn.LocalResponseNorm(5) | self.op(x) | 16x64x56x56
max_pool_1d | op=nn.MaxPool1d(8, stride=1, padding=4, dilation=3) | self.op(x) | 64x192x65536
max_pool_2d | op=nn.MaxPool2d(4, stride=1, padding=1, dilation=1) | self.op(x) | 32x64x512x512
max_pool_3d | op=nn.MaxPool3d(3, stride=2, padding=1, dilation=3) | self.op(x) | 16x32x128x128x128
max_pool_with_indices | op=nn.MaxPool2d(2, return_indices=True) | self.op(x)[1] | 8x16x64x64
avg_pool_1d | op=nn.AvgPool1d(8, stride=1, padding=4) | self.op(x) | 64x128x65536
avg_pool_2d | op=nn.AvgPool2d(11) | self.op(x) | 16x64x512x512
avg_pool_3d | op=nn.AvgPool3d(3, stride=2, padding=1) | self.op(x) | 16x32x128x128x256
adaptive_avg_pool | op=nn.AdaptiveAvgPool2d((7, 7)) | self.op(x) | 32x512x20x20
adaptive_max_pool | op=nn.AdaptiveMaxPool2d((5, 7)) | self.op(x) | 32x64x20x20
power_average_pool | op=nn.LPPool2d(2, 3, stride=2) | self.op(x) | 8x64x56x56
fractional_max_pool | op=nn.FractionalMaxPool2d(3, output_size=(13, 12)) | self.op(x) | 4x16x50x32
sum_over_dimension | . | torch.sum(x, dim=1, keepdim=True) | 128x4096x4095
mean_over_dimension | . | torch.mean(x, dim=1) | 128x4096x4095
max_over_dimension | . | torch.max(x, dim=1)[0] | 128x4096x4095
min_over_dimension | . | torch.min(x, dim=1)[0] | 128x4096x4095
product_over_dimension | . | torch.prod(x, dim=1) | 64x512x511
variance | . | torch.var(x, dim=-1) | 512x4096
argmax | . | torch.argmax(x, dim=1) | 128x4096x4095
argmin | . | torch.argmin(x, dim=1) | 128x4096x4095
log_sum_exp | . | torch.logsumexp(x, dim=1) | 512x8192
top_k | . | torch.topk(x, 16, dim=-1)[0] | 256x4096
sort | . | torch.sort(x, dim=-1)[0] | 256x4096
median | . | torch.median(x, dim=-1)[0] | 256x4096
cumulative_sum | . | torch.cumsum(x, dim=1) | 32768x32768
cumulative_product | . | torch.cumprod(x, dim=1) | 32768x32768
cumulative_sum_reversed | . | torch.cumsum(x.flip(1), dim=1).flip(1) | 8192x8192
cumulative_sum_exclusive | . \
| torch.cumsum(torch.cat((torch.zeros_like(x.select(1, 0).unsqueeze(1)), x), dim=1)[:, :-1], dim=1) | 8192x8192
cumulative_sum_masked | . | torch.cumsum(x * y, dim=1) | 8192x8192 b:8192x8192
conv_1d | op=nn.Conv1d(64, 128, 3) | self.op(x) | 32x64x131072
conv_1d_strided_dilated | op=nn.Conv1d(64, 128, 3, stride=3, dilation=4) | self.op(x) | 64x64x65536
conv_2d | op=nn.Conv2d(3, 96, 11, stride=4, padding=2) | self.op(x) | 256x3x224x224
conv_2d_asymmetric | op=nn.Conv2d(64, 128, (5, 9), padding=(2, 4), dilation=(2, 3), bias=False) | self.op(x) \
| 8x64x256x512
conv_2d_depthwise | op=nn.Conv2d(64, 64, 3, groups=64, padding=1) | self.op(x) | 64x64x256x256
conv_2d_separable | deep=nn.Conv2d(64, 64, 3, groups=64, padding=1); point=nn.Conv2d(64, 128, 1) \
| self.point(self.deep(x)) | 16x64x256x256
conv_2d_same | op=nn.Conv2d(16, 32, 5, padding="same", padding_mode="reflect") | self.op(x) | 8x16x64x64
conv_3d | op=nn.Conv3d(3, 64, (3, 5, 7)) | self.op(x) | 16x3x64x64x64
conv_transposed_1d | op=nn.ConvTranspose1d(64, 128, 5, stride=2, padding=3, dilation=3) | self.op(x) | 32x64x16384
conv_transposed_2d \
| op=nn.ConvTranspose2d(64, 32, (3, 7), stride=(2, 1), padding=(1, 2), output_padding=(1, 0), groups=4) \
| self.op(x) | 8x64x128x256
conv_transposed_3d | op=nn.ConvTranspose3d(32, 64, (3, 5, 5), stride=2, padding=1, dilation=2) | self.op(x) \
| 8x32x16x32x32
mean_squared_error | . | torch.mean((x - y) ** 2) | 32768x32768 32768x32768
cross_entropy | . | F.cross_entropy(x, y) | 32768x4096 i4096:32768
cross_entropy_smoothed | op=nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=0, reduction="sum") \
| self.op(x, y) | 4096x512 i512:4096
huber | . | F.smooth_l1_loss(x, y) | 32768x32768 32768x32768
kl_divergence | . | F.kl_div(torch.log(x), y, reduction="batchmean") | 8192x16384 8192x16384
triplet | op=nn.TripletMarginLoss(margin=1.0) | self.op(x, y, z) | 32768x8192 32768x8192 32768x8192
hinge | . | torch.mean(torch.clamp(1 - x * y, min=0)) | 32768x32768 32768x1
cosine_loss | . | torch.mean(1 - F.cosine_similarity(x, y, dim=1)) | 32768x4096 32768x4096
binary_cross_entropy | . | F.binary_cross_entropy_with_logits(x, y) | 4096x1024 4096x1024
ctc_loss | op=nn.CTCLoss() | self.op(x.log_softmax(2), y, torch.full((16,), 50), torch.full((16,), 20)) \
| 50x16x20 i19:16x20
attention | . | F.scaled_dot_product_attention(x, y, z) | 32x32x512x1024 32x32x512x1024 32x32x512x1024
embedding_lookup | op=nn.Embedding(50000, 512) | self.op(x) | i50000:64x128
"""
