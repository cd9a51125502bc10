"""What guarantees rest on, by id. Certificates hold the ids, so that a better wording invalidates none of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["ASSUMPTIONS", "Assumption", "assumption_id", "assumption_text"]


@dataclass(frozen=True, slots=True)
class Assumption:
    """One thing that must hold, what it asks of the people involved, and how they can check it.

    `wordings`: the present one first, then every earlier one that stands in a certificate somewhere (those of version
    0.1.0 held sentences, not ids). A number in a sentence is written #.
    """

    asks: str
    wordings: tuple[str, ...]
    check: str = ""


ASSUMPTIONS: dict[str, Assumption] = {
    "row-order": Assumption(
        "do not sort or group the file by something that is secret",
        ("the order of rows is independent of their content",),
        check="look at how the file was exported: no sorting by a column that is secret, no grouping by it",
    ),
    "parameters-only": Assumption(
        "whoever asks for a prediction shows the row that is asked about",
        ("only the released parameters are protected: a prediction at a private input reveals that input",),
        check="see who may send rows to the model and who reads the answers",
    ),
    "public-inputs": Assumption(
        "decide on columns, classes and sizes without looking at the rows",
        ("public inputs (number of rows, columns, classes, seeds of features) do not depend on the private data",),
        check="see when columns, classes and sizes were fixed: before the rows were looked at, or in a written plan",
    ),
    "one-pass-once": Assumption(
        "no row is repeated, and nobody saw the model before the pass had ended",
        ("one pass: each record is used in exactly one step, and only the last iterate is released",),
        check="count the rows that are equal, inside the organisation; see that no intermediate model was handed out",
    ),
    "one-pass-non-expansive": Assumption(
        "enforced by the program, row by row",
        ("one pass: every step map is non-expansive, by the step cap 2/(L·‖x‖²) on each record",),
        check="nothing to do; the replay audit (gratis audit replay) looks for a step that breaks it",
    ),
    "one-pass-fixed": Assumption(
        "enforced by the program: the plan is made first",
        ("one pass: step sizes, clip norms and noise were fixed before data was read",),
        check="compare the certificate's settings with the plan file of gratis plan --output",
    ),
    "full-batch": Assumption(
        "even someone who saw every intermediate step learns no more than stated",
        ("full batch: every record enters every step, and all iterates may be released",),
        check="nothing to do",
    ),
    "public-classes": Assumption(
        "that a class occurs at all is no secret; list the classes with --classes if it is",
        ("the set of classes that occur is public",),
        check="see whether the list of classes is published elsewhere, or the fit was run with --classes",
    ),
    "public-types": Assumption(
        "what columns are called, and whether they look like numbers, is no secret; write a --schema if it is",
        (
            "names and types of columns, as the file states them or as its first cells have them, are public",
            "the types of columns, guessed from the first cells of the CSV file, are public",
        ),
        check="see whether names and types of the columns are documented, or the fit was run with --schema",
    ),
    "readable-cells": Assumption(
        "a file that cannot be used is refused with the reason, before anything is spent",
        ("that cells can be read, and targets are present and of more than one value, is public",),
        check="see that refusals of the program were not shown to outsiders while the file was corrected",
    ),
    "readable-file": Assumption(
        "a file that cannot be used is refused with the reason, before anything is spent; missing targets are not",
        (
            "that the file can be read, that no text stands among a column's numbers, and that the target has more "
            "than one value, is public",
        ),
        check="see that refusals of the program were not shown to outsiders while the file was corrected",
    ),
    "earlier-levels": Assumption(
        "count the search for levels, which has a certificate of its own, beside this release",
        ("levels of columns are those that an earlier private search released; its cost is not part of this one",),
        check="see that the ledger, or whoever adds up, has the search too (levels.json holds its certificate)",
    ),
    "many-target-values": Assumption(
        "how many values the target has is no secret; pass --task if it is",
        ("that the target has more than # different values is public",),
        check="see whether the kind of target is documented, or the fit was run with --task",
    ),
    "persons": Assumption(
        "give all rows of a person the same id, and nobody else's",
        (
            "all rows of a person carry the same id, and nobody else's do; how many persons there are is public, how "
            "many rows each of them has is not",
        ),
        check="see how the ids were made: nobody has two, by a change of name, of address or of system",
    ),
    "disjoint-persons": Assumption(
        "the score and the model are about different people",
        (
            "held-out persons were chosen by their ids alone, which are public labels here: all rows of a person enter "
            "the model, or all the score, so that releasing both costs the larger of the two budgets, not their sum",
        ),
        check="see that the ids tell nothing of the rows, for example that they are no dates of entry",
    ),
    "own-loop": Assumption(
        "the owner's program used the noisy gradients and let nothing else out that was computed from the rows",
        ("own loop: of what was computed from the records only the noisy gradients were used outside",),
        check="read the loop: it must not log, store or act on losses, batches or gradients of private rows",
    ),
    "records-apart": Assumption(
        "the network treats every record by itself; the program tried it on synthetic records",
        ("the module and its loss treat records one by one, and raise on none",),
        check="see that no layer looks across the batch, and that the loss returns one value a record",
    ),
    "trusted-ranks": Assumption(
        "the machines that trained together trusted each other: the first of them saw exact sums",
        ("several processes: every one ran this program on its own records, and rank 0 saw exact sums",),
        check="see who could read the memory of the first machine and the network between them",
    ),
    "honest-silos": Assumption(
        "most organisations kept their own noise secret, and what each of them sent was never seen by itself",
        ("silos: at least the planned number added their share of the noise and kept it, and nobody saw one share",),
        check="see how shares were added up (secure aggregation), and which organisations might collude",
    ),
    "disjoint-parts": Assumption(
        "the score and the model are about different people",
        (
            "held-out rows were chosen by their position alone and no row is in both parts: a row enters the model or "
            "the score, so that releasing both costs the larger of the two budgets, not their sum",
        ),
        check="see that no person has rows in both parts: one row a person, or a unit of privacy that says otherwise",
    ),
}


def assumption_id(words: str) -> str:
    """Return the id of an assumption given by its id or by any of its wordings; what is unknown stays as it is.

    >>> assumption_id("the set of classes that occur is public")
    'public-classes'
    """
    if words in ASSUMPTIONS:
        return words
    sentence = re.sub(r"\b\d+\b", "#", words)
    return next((key for key, known in ASSUMPTIONS.items() if {words, sentence} & {*known.wordings}), words)


def assumption_text(name: str) -> str:
    """Return the present wording of an assumption; one that is unknown (of a later version, or a user's own) as it is.

    >>> assumption_text("many-target-values")
    'that the target has more than a public number of different values is public'
    """
    known = ASSUMPTIONS.get(name)
    return name if known is None else known.wordings[0].replace("#", "a public number of")
