//! IPsec flow actions. No kernel from 6.1 to 7.2 creates them, but the layouts are fixed.

layout! {
    /// Key material for AES-GCM.
    struct FlowActionEspKeymatAesGcm = "ib_uverbs_flow_action_esp_keymat_aes_gcm", 56 {
        0  iv: u64, "First initialisation vector.";
        8  iv_algo: u32, "How vectors are made: 0, by sequence.";
        12 salt: u32, "Salt.";
        16 icv_len: u32, "Bits of the check value.";
        20 key_len: u32, "Bits of the key.";
        24 aes_key: [u32; 8], "The key.";
    }

    /// Replay protection by a bitmap.
    struct FlowActionEspReplayBmp = "ib_uverbs_flow_action_esp_replay_bmp", 4 {
        0 size: u32, "Bits of the window.";
    }

    /// One header of the tunnel, in a list.
    struct FlowActionEspEncap = "ib_uverbs_flow_action_esp_encap", 24 {
        0  val_ptr: u64, "Address of a filter of [`crate::flow`].";
        8  next_ptr: u64, "Address of the next entry, or zero.";
        16 len: u16, "Bytes of the filter.";
        18 type_ ("type"): u16, "Kind of the filter.";
        20 pad (): u32, "Padding that C leaves unnamed.";
    }

    /// An IPsec security association.
    struct FlowActionEsp = "ib_uverbs_flow_action_esp", 24 {
        0  spi: u32, "Security parameter index.";
        4  seq: u32, "Sequence number.";
        8  tfc_pad: u32, "Padding against traffic analysis.";
        12 flags: u32, "Bit 0 full offload, 1 transport mode, 2 encrypt, 3 new window of sequence numbers.";
        16 hard_limit_pkts: u64, "Packets until it ends.";
    }
}
