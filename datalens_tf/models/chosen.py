"""Images of a generator, each the best of several in a classifier's eyes."""

import tensorflow as tf


class ChosenGenerator(tf.Module):
    """Images of a generator, each the one of several for its label to which a classifier gives this label most surely.

    Input shape: latents float32 [n, latent_dim], those of all images; labels integer [n].
    Output shape: images float32 [n, H, W, C] in [0, 1].

    Args:
      generator: takes latents and labels; with a `latent_dim`.
      classifier: images to logits [n, Y].
      choices: images among which one is chosen, >= 1.
    """

    def __init__(self, generator: tf.Module, classifier: tf.Module, choices: int, name: str | None = None):
        super().__init__(name=name)
        self.generator, self.classifier, self.choices = generator, classifier, choices

    @property
    def latent_dim(self) -> int:
        """Numbers that the images are made of among which one is chosen."""
        return int(self.choices * self.generator.latent_dim)

    def __call__(self, inputs, training: bool = False):
        latents, labels = inputs
        images = [self.generator([part, labels], training=False) for part in tf.split(latents, self.choices, axis=1)]
        chances = [tf.gather(tf.nn.softmax(self.classifier(made, training=False)), labels, axis=1, batch_dims=1)
                   for made in images]
        return tf.gather(tf.stack(images, 1), tf.argmax(tf.stack(chances, 1), 1), axis=1, batch_dims=1)
