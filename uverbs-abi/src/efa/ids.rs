//! Numbers of the methods and attributes that the driver adds to core objects.
//!
//! The scheme is that of [`crate::ids`]. All ids lie in the driver's range, from 0x1000 on.

object! {
    /// Added to memory regions.
    mr ("UVERBS_OBJECT_MR") = 7;
    method: "EFA_IB_METHOD_MR_" {
        QUERY = 0x1000, "Reads by which ways the device reaches a region. Not in Linux 6.1.";
    }
    query: "EFA_IB_ATTR_QUERY_MR_" {
        HANDLE = 0x1000, "The region.";
        RESP_IC_ID_VALIDITY = 0x1001, "Out: which of the others are valid, [`QUERY_MR_VALIDITY_RECV_IC_ID`](super::super::super::QUERY_MR_VALIDITY_RECV_IC_ID) and others.";
        RESP_RECV_IC_ID = 0x1002, "Out: the interconnect of received messages.";
        RESP_RDMA_READ_IC_ID = 0x1003, "Out: the interconnect of the data of reads.";
        RESP_RDMA_RECV_IC_ID = 0x1004, "Out: the interconnect of received writes.";
    }
}

object! {
    /// Added to completion counters (Linux 7.3).
    comp_cntr ("UVERBS_OBJECT_COMP_CNTR") = 19;
    create: "EFA_IB_ATTR_CREATE_COMP_CNTR_" {
        COMP_BUFFER = 0x1000, "Where the device writes successes, [`crate::write::BufferDesc`] (Linux 7.3).";
        ERR_BUFFER = 0x1001, "Where it writes errors, [`crate::write::BufferDesc`] (Linux 7.3).";
    }
}

/// The numbers of all objects as data.
pub(crate) const TABLES: &[&[&[crate::layout::Number]]] = &[mr::TABLES, comp_cntr::TABLES];
