"""Networks: perceptrons, convolutional nets of all generations, recurrent nets, transformers, state-space models."""

from pathlib import Path

CLASSES = Path(__file__).with_name("networks.py").read_text(encoding="utf-8").split("# --- networks ---\n", 1)[1]

ROWS = """
perceptron | net=PerceptronNet(16384, (1024, 1024), 8192) | self.net(x) | 128x16384
perceptron_shallow_wide | net=PerceptronNet(16384, (32768, 32768), 16384) | self.net(x) | 128x16384
perceptron_deep_narrow | net=PerceptronNet(8192, (1024,) * 16, 8192) | self.net(x) | 1024x8192
lenet | net=LeNetNet(20) | self.net(x) | 4096x1x32x32
alexnet | net=AlexNetNet(1000) | self.net(x) | 64x3x224x224
inception_module | net=InceptionNet(480, 192, 96, 208, 16, 48, 64) | self.net(x) | 10x480x224x224
googlenet | net=GoogLeNetNet(1000) | self.net(x) | 10x3x224x224
residual_block | net=ResidualNet(3, 64) | self.net(x) | 10x3x224x224
resnet_18 | net=ResNetNet(BasicNet, (2, 2, 2, 2)) | self.net(x) | 2x3x224x224
resnet_101 | net=ResNetNet(BottleneckNet, (3, 4, 23, 3)) | self.net(x) | 10x3x224x224
vgg_16 | net=VggNet((2, 2, 3, 3, 3)) | self.net(x) | 10x3x224x224
vgg_19 | net=VggNet((2, 2, 4, 4, 4)) | self.net(x) | 10x3x224x224
squeezenet_fire | net=FireNet(3, 6, 64, 64) | self.net(x) | 128x3x256x256
squeezenet | net=SqueezeNet(1000) | self.net(x) | 64x3x512x512
mobilenet_1 | net=MobileNet1Net(1000) | self.net(x) | 10x3x224x224
mobilenet_2 | net=MobileNet2Net(1000) | self.net(x) | 10x3x224x224
inverted_residual | net=InvertedNet(112, 192, 5, 2, 6, squeeze=True) | self.net(x) | 10x112x224x224
efficientnet_0 | net=EfficientNet(1.0, 1.0) | self.net(x) | 10x3x224x224
efficientnet_1 | net=EfficientNet(1.0, 1.1) | self.net(x) | 10x3x240x240
efficientnet_2 | net=EfficientNet(1.1, 1.2) | self.net(x) | 2x3x260x260
dense_block | net=DenseBlockNet(6, 32, 32) | self.net(x) | 10x32x224x224
dense_transition | net=TransitionNet(32, 64) | self.net(x) | 128x32x256x256
densenet_121 | net=DenseNet((6, 12, 24, 16)) | self.net(x) | 10x3x224x224
densenet_201 | net=DenseNet((6, 12, 48, 32)) | self.net(x) | 10x3x224x224
shuffle_unit | net=ShuffleUnitNet(240, 480, 3) | self.net(x) | 10x240x224x224
shufflenet | net=ShuffleNet(1000) | self.net(x) | 10x3x224x224
regnet | net=RegNet((64, 128, 256)) | self.net(x) | 8x3x224x224
unet_softmax | net=UNet(8, 4, 64) | self.net(x) | 8x8x64x512
netvlad | net=VladNet(32, 512, 0) | self.net(x) | 2048x100x512
netvlad_ghosts | net=VladNet(32, 512, 16) | self.net(x) | 2048x100x512
vision_transformer | net=VisionTransformerNet(224, 16, 512, 6, 8) | self.net(x) | 2x3x224x224
convolutional_transformer | net=ConvTransformerNet(128, 6, 4) | self.net(x) | 10x3x32x32
swin_mlp | net=WindowNet(96, 7, attention=False) | self.net(x) | 10x56x56x96
swin | net=WindowNet(96, 7, attention=True) | self.net(x) | 10x56x56x96
vision_attention | net=VisionAttentionNet(128, 4) | self.net(x) | 2x128x128x128
gpt_attention | net=CausalAttentionNet(768, 8, 1024) | self.net(x) | 128x512x768
gpt_attention_relu | net=CausalAttentionNet(768, 12, 1024, F.relu) | self.net(x) | 16x1024x768
gpt_block | net=GptBlockNet(768, 8, 1024) | self.net(x) | 128x512x768
transformer_encoder \
| net=nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 8, batch_first=True), 2); Net=nn.Identity() \
| self.Net(self.net(x)) | 16x128x256
rnn_cell_unrolled | net=CellNet(1024, 256, 128) | self.net(x, y) | 64x1024 64x256
rnn_over_time | net=OverTimeNet(1024, 256) | self.net(x, y) | 256x8x1024 8x256
lstm | net=RecurrentNet(nn.LSTM, 128, 256, 6, False, "last") | self.net(x) | 10x512x128
lstm_hidden | net=RecurrentNet(nn.LSTM, 128, 256, 6, False, "hidden") | self.net(x) | 10x512x128
lstm_cell_state | net=RecurrentNet(nn.LSTM, 128, 256, 6, False, "cell") | self.net(x) | 10x512x128
lstm_bidirectional | net=RecurrentNet(nn.LSTM, 128, 256, 6, True, "last") | self.net(x) | 10x512x128
gru | net=RecurrentNet(nn.GRU, 128, 256, 6, False, "all") | self.net(x) | 10x512x128
gru_hidden | net=RecurrentNet(nn.GRU, 128, 256, 6, False, "hidden") | self.net(x) | 10x512x128
gru_bidirectional | net=RecurrentNet(nn.GRU, 128, 256, 6, True, "all") | self.net(x) | 10x512x128
gru_bidirectional_hidden | net=RecurrentNet(nn.GRU, 128, 256, 6, True, "hidden") | self.net(x) | 10x512x128
state_space | net=StateSpaceNet(2048, 8, 16, 64, False) | self.net(x) | 16x2048x8x64
state_space_final | net=StateSpaceNet(2048, 8, 16, 64, True) | self.net(x) | 16x2048x8x64
"""
