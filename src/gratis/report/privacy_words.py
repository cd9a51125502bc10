"""The guarantee in plain sentences, for someone who must decide whether a model may leave the house."""

from __future__ import annotations

from gratis.records.certificates import Certificate, Selection

__all__ = ["privacy_sentences"]

_SELECTION = {
    Selection.NONE: "Settings were fixed before the data was touched: choosing them cost nothing.",
    Selection.PUBLIC: "Settings were chosen on public data: choosing them cost nothing.",
    Selection.INCLUDED: "Settings were chosen from earlier releases of the same run; the guarantee includes that.",
    Selection.NOT_COVERED: "Settings were chosen on the private data, and that choice is NOT covered by the guarantee.",
}


def privacy_sentences(certificate: Certificate, *, accuracy: float, detection: float, false_alarms: float) -> list[str]:
    """Say what an attacker can tell at most; the three numbers are proved upper bounds."""
    replaced = str(certificate.neighbouring) == "replace-one"
    whether = "whether it was you or somebody else in your place" if replaced else "whether you were among them"
    guarantee = certificate.guarantee
    sentences = [
        f"Who sees the model and knows the rows of all other people can tell {whether} with at most {_share(accuracy)} "
        "right answers. A coin has 50 %.",
        f"At {_share(false_alarms)} false alarms, such an attacker recognises at most {_share(detection)} of those "
        "who are in the data.",
        f"This is proved, for every attack, now and later, and whatever else is known about you. The unit is "
        f"{certificate.unit}.",
    ]
    if "epsilon" in guarantee and "delta" in guarantee:
        sentences.append(
            f"In the field's words: ({float(guarantee['epsilon']):.4g}, {guarantee['delta']:g})-differential privacy "
            f"under {certificate.neighbouring}"
            + (f", or {float(guarantee['mu']):.4g}-Gaussian differential privacy." if "mu" in guarantee else ".")
        )
    if not replaced:
        sentences.append("To tell you from somebody else in your place is two such steps: the bounds for twice the μ.")
    sentences.append(_SELECTION[certificate.selection])
    sentences.append(
        "What is not protected: what is true of people like you whether or not you take part, and the rows that "
        "predictions are asked for."
    )
    return sentences


def _share(value: float) -> str:
    """A percentage that is never rounded down: whole ones, tenths below ten.

    >>> _share(0.5533), _share(0.0198), _share(0.01)
    ('56 %', '2 %', '1 %')
    """
    digits = 0 if value >= 0.1 else 1
    scaled = 100 * value * 10**digits
    up = -int(-(scaled - 1e-9) // 1)
    return f"{up / 10**digits:g} %"
