"""Accuracy of the training benchmark's LeNet-5 on scikit-learn's digits, enlarged to 28×28."""

from collections.abc import Iterator

from benchmarks._figures import Figure
from nearpeak.measurement.training.small_models import build_model
from nearpeak.measurement.training.training_run import LEARNING_RATE, MOMENTUM

FIGURES = ("lenet_digits_accuracy",)
EPOCHS, TRAINED, BATCH, SEED = 10, 1437, 16, 0


def measure() -> Iterator[Figure]:
    """Yield the share of right answers on images that were not trained on."""
    accuracy = held_out_accuracy()
    yield Figure(
        name="lenet_digits_accuracy", value=accuracy, unit="", bar=">= 0.95", passed=accuracy >= 0.95, seed=SEED
    )


def held_out_accuracy() -> float:
    """Return the accuracy on a fifth of the 1,797 images after training on the others."""
    import torch
    from sklearn.datasets import load_digits

    torch.manual_seed(SEED)
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32)[:, None] / 8 - 1
    images = torch.nn.functional.interpolate(images, size=(28, 28), mode="bilinear")
    labels, order = torch.tensor(data.target), torch.randperm(len(images))
    train, test = order[:TRAINED], order[TRAINED:]
    model = build_model("lenet5", 10, seed=SEED)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    for _ in range(EPOCHS):
        for batch in train[torch.randperm(len(train))].split(BATCH):
            loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        return float((model(images[test]).argmax(1) == labels[test]).float().mean())
