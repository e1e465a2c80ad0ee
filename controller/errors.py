"""OpenFlow errors by the names that the specification and Open vSwitch give them."""

from msgspec import Struct

IS_SECONDARY = (1, 10)
_EXPERIMENTER = 0xFFFF
_NICIRA = 0x2320

_TYPES = {
    0: ("HELLO_FAILED", "INCOMPATIBLE EPERM"),
    1: (
        "BAD_REQUEST",
        (
            "BAD_VERSION BAD_TYPE BAD_MULTIPART BAD_EXPERIMENTER BAD_EXP_TYPE EPERM BAD_LEN BUFFER_EMPTY "
            "BUFFER_UNKNOWN BAD_TABLE_ID IS_SECONDARY BAD_PORT BAD_PACKET MULTIPART_BUFFER_OVERFLOW "
            "MULTIPART_REQUEST_TIMEOUT MULTIPART_REPLY_TIMEOUT MULTIPART_BAD_SCHED PIPELINE_FIELDS_ONLY UNKNOWN"
        ),
    ),
    2: (
        "BAD_ACTION",
        (
            "BAD_TYPE BAD_LEN BAD_EXPERIMENTER BAD_EXP_TYPE BAD_OUT_PORT BAD_ARGUMENT EPERM TOO_MANY BAD_QUEUE "
            "BAD_OUT_GROUP MATCH_INCONSISTENT UNSUPPORTED_ORDER BAD_TAG BAD_SET_TYPE BAD_SET_LEN BAD_SET_ARGUMENT "
            "BAD_SET_MASK BAD_METER"
        ),
    ),
    3: (
        "BAD_INSTRUCTION",
        (
            "UNKNOWN_INST UNSUP_INST BAD_TABLE_ID UNSUP_METADATA UNSUP_METADATA_MASK BAD_EXPERIMENTER BAD_EXP_TYPE "
            "BAD_LEN EPERM DUP_INST"
        ),
    ),
    4: (
        "BAD_MATCH",
        (
            "BAD_TYPE BAD_LEN BAD_TAG BAD_DL_ADDR_MASK BAD_NW_ADDR_MASK BAD_WILDCARDS BAD_FIELD BAD_VALUE BAD_MASK "
            "BAD_PREREQ DUP_FIELD EPERM"
        ),
    ),
    5: (
        "FLOW_MOD_FAILED",
        (
            "UNKNOWN TABLE_FULL BAD_TABLE_ID OVERLAP EPERM BAD_TIMEOUT BAD_COMMAND BAD_FLAGS CANT_SYNC BAD_PRIORITY "
            "IS_SYNC"
        ),
    ),
    6: (
        "GROUP_MOD_FAILED",
        (
            "GROUP_EXISTS INVALID_GROUP WEIGHT_UNSUPPORTED OUT_OF_GROUPS OUT_OF_BUCKETS CHAINING_UNSUPPORTED "
            "WATCH_UNSUPPORTED LOOP UNKNOWN_GROUP CHAINED_GROUP BAD_TYPE BAD_COMMAND BAD_BUCKET BAD_WATCH EPERM "
            "UNKNOWN_BUCKET BUCKET_EXISTS"
        ),
    ),
    7: ("PORT_MOD_FAILED", "BAD_PORT BAD_HW_ADDR BAD_CONFIG BAD_ADVERTISE EPERM"),
    8: ("TABLE_MOD_FAILED", "BAD_TABLE BAD_CONFIG EPERM"),
    9: ("QUEUE_OP_FAILED", "BAD_PORT BAD_QUEUE EPERM"),
    10: ("SWITCH_CONFIG_FAILED", "BAD_FLAGS BAD_LEN EPERM"),
    11: ("ROLE_REQUEST_FAILED", "STALE UNSUP BAD_ROLE ID_UNSUP ID_IN_USE"),
    12: (
        "METER_MOD_FAILED",
        (
            "UNKNOWN METER_EXISTS INVALID_METER UNKNOWN_METER BAD_COMMAND BAD_FLAGS BAD_RATE BAD_BURST BAD_BAND "
            "BAD_BAND_VALUE OUT_OF_METERS OUT_OF_BANDS"
        ),
    ),
    14: (
        "BAD_PROPERTY",
        "BAD_TYPE BAD_LEN BAD_VALUE TOO_MANY DUP_TYPE BAD_EXPERIMENTER BAD_EXP_TYPE BAD_EXP_VALUE EPERM",
    ),
    15: ("ASYNC_CONFIG_FAILED", "INVALID UNSUPPORTED EPERM"),
    17: (
        "BUNDLE_FAILED",
        (
            "UNKNOWN EPERM BAD_ID BUNDLE_EXIST BUNDLE_CLOSED OUT_OF_BUNDLES BAD_TYPE BAD_FLAGS MSG_BAD_LEN MSG_BAD_XID "
            "MSG_UNSUP MSG_CONFLICT MSG_TOO_MANY MSG_FAILED TIMEOUT BUNDLE_IN_PROGRESS SCHED_NOT_SUPPORTED "
            "SCHED_FUTURE SCHED_PAST"
        ),
    ),
}
_NAMES = {
    (kind, code): f"{name} {word}" for kind, (name, words) in _TYPES.items() for code, word in enumerate(words.split())
}
_OPEN_VSWITCH = {
    2: "BAD_REQUEST NXM_INVALID",
    3: "BAD_REQUEST NXM_BAD_TYPE",
    4: "BAD_REQUEST MUST_BE_ZERO",
    10: "BAD_REQUEST UNENCODABLE_ERROR",
    11: "BAD_ACTION MUST_BE_ZERO",
    12: "FLOW_MOD_FAILED HARDWARE",
    13: "FLOW_MOD_FAILED BAD_TABLE_ID",
    15: "BAD_ACTION BAD_CONJUNCTION",
    22: "BUNDLE_FAILED BAD_VERSION",
    34: "RESUME NOT_SUPPORTED",
    37: "FLOW_MOD_FAILED INVALID_TLV_FIELD",
    42: "BAD_ACTION CT_DATAPATH_SUPPORT",
    43: "BAD_MATCH CT_DATAPATH_SUPPORT",
}


class SwitchError(Struct, frozen=True):
    """An error message. `experimenter` 0 for standard errors; else `code` is the experimenter's error number.

    `data`: the beginning of the message that failed, or for a failed hello a text.
    """

    xid: int
    type: int
    code: int
    data: bytes
    experimenter: int = 0

    @property
    def is_secondary(self) -> bool:
        """Refused because another controller is master."""
        return (self.type, self.code) == IS_SECONDARY and not self.experimenter

    @property
    def name(self) -> str:
        if not self.experimenter:
            return _NAMES.get((self.type, self.code), f"type {self.type} code {self.code}")
        if self.experimenter == _NICIRA:
            return _OPEN_VSWITCH.get(self.code, f"Open vSwitch error {self.code}")
        return f"experimenter {self.experimenter:#x} error {self.code}"

    def __str__(self) -> str:
        return self.name
