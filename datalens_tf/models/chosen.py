"""Images of a generator, each the best of several in a classifier's eyes."""

import tensorflow as tf


class ChosenGenerator(tf.Module):
    """Images of a generator, each chosen from several as the one to which a classifier gives its label most surely.

    Input shape: latents float32 [n, latent_dim], of all images to choose from; labels integer [n].
    Output shape: images float32 [n, H, W, C] in [0, 1].

    Args:
      generator: takes latents and labels; with a `latent_dim`.
      classifier: maps images to logits [n, Y].
      choices: number of images among which one is chosen, >= 1.
    """

    def __init__(self, generator: tf.Module, classifier: tf.Module, choices: int, name: str | None = None):
        super().__init__(name=name)
        self.generator, self.classifier, self.choices = generator, classifier, choices

    @property
    def latent_dim(self) -> int:
        """Numbers that all the images to choose from are made of."""
        return int(self.choices * self.generator.latent_dim)

    def __call__(self, inputs, training: bool = False):
        latents, labels = inputs
        images = [self.generator([part, labels], training=False) for part in tf.split(latents, self.choices, axis=1)]
        chances = [tf.gather(tf.nn.softmax(self.classifier(made, training=False)), labels, axis=1, batch_dims=1)
                   for made in images]
        return tf.gather(tf.stack(images, 1), tf.argmax(tf.stack(chances, 1), 1), axis=1, batch_dims=1)
