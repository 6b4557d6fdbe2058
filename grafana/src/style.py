"""Colours, units, thresholds and legends that all dashboards share.

Colours are Okabe and Ito's, which people with any colour vision can distinguish (Color Universal Design, 2008); a state is
never shown by colour alone, there is always a text or a number with it.
"""

from . import thresholds

BLUE = "#56B4E9"
DEEP = "#0072B2"
GREEN = "#009E73"
YELLOW = "#F0E442"
ORANGE = "#E69F00"
RED = "#D55E00"
PINK = "#CC79A7"
GREY = "#8E8E8E"

GOOD, WARN, BAD, NEUTRAL = BLUE, ORANGE, RED, "text"

# Units are Grafana's ids (grafana_foundation_sdk.models.units; tests/grafana holds each panel to them).
SECONDS, WATTS, JOULES, WATT_HOURS = "s", "watt", "joule", "watth"
BYTES, BYTES_PER_SECOND = "bytes", "binBps"
RATIO = "percentunit"
# Of axes, where 1280 may be 1.28 K; and of what somebody reads, where it is 1,280.
NUMBER, COUNT = "short", "locale"
MILLISECONDS_DATE = "dateTimeAsIso"
NONE = "none"
# Of tables: a label that is a number, such as a job id, is shown as it is. Columns of values have units of their own.
TEXT = "string"
GRAMS = "massg"
HERTZ, CELSIUS = "hertz", "celsius"
FLOPS, OPS, PACKETS = "flops", "ops", "pps"
# Grafana puts kilo, mega, giga before what follows the colon.
FLOP_PER_JOULE = "si:FLOP/J"

# Ratios, as the alerts have them: rules/thresholds.yaml.
CPU_LOW, CPU_FAIR = thresholds.CPU_LOW_RATIO, thresholds.CPU_FAIR
GPU_LOW, GPU_FAIR = thresholds.GPU_LOW_USE_RATIO, thresholds.GPU_FAIR
MEMORY_NEAR_LIMIT = thresholds.MEMORY_NEAR_LIMIT_RATIO
# Reasons for which a GPU's clocks are held down that mean trouble, as the alert has them; and those that mean none.
HELD_DOWN = "sw_thermal|hw_thermal|hw_power_brake|thermal|memory_thermal|voltage_regulator_thermal|external"
NOT_HELD_DOWN = "idle|applications_clocks|display_clocks|sync_boost|current"
RESIDUAL = thresholds.RESIDUAL_RATIO
SCRAPE_SLOW_SECONDS = thresholds.SCRAPE_SLOW_SECONDS

# (lower bound, colour); the first has none.
EFFICIENCY_CPU = [(None, BAD), (CPU_LOW, WARN), (CPU_FAIR, GOOD)]
EFFICIENCY_GPU = [(None, BAD), (GPU_LOW, WARN), (GPU_FAIR, GOOD)]
NEAR_LIMIT = [(None, GOOD), (0.8, WARN), (MEMORY_NEAR_LIMIT, BAD)]
PRESSURE = [(None, GOOD), (0.1, WARN), (0.3, BAD)]
NONE_IS_GOOD = [(None, GOOD), (1, BAD)]
PLAIN = [(None, NEUTRAL)]
WASTED = [(None, GOOD), (1, WARN), (8, BAD)]
BALANCE = [(None, BAD), (0.5, WARN), (0.8, GOOD)]
COVERAGE = [(None, BAD), (0.5, WARN), (0.95, GOOD)]
RESIDUALS = [(None, GOOD), (0.05, WARN), (RESIDUAL, BAD)]
