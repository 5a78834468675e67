"""Registration of `.format("penstock")`: Spark imports the package of this name and looks for
`DefaultSource`.
"""

from penstock.pipeline.source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
