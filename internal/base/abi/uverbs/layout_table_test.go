package uverbs

// layouts lists the structures with their C counterparts, the size of the C structures, and the fields that are not
// reserved, in order.
var layouts = []struct {
	v      any
	c      string
	size   int
	fields string
}{
	{Hdr{}, "ib_uverbs_cmd_hdr", 8, `command in_words out_words`},
	{ExHdr{}, "ib_uverbs_ex_cmd_hdr", 16, `response provider_in_words provider_out_words cmd_hdr_reserved`},
	{AsyncEvent{}, "ib_uverbs_async_event_desc", 16, `element event_type`},
	{CompEvent{}, "ib_uverbs_comp_event_desc", 8, `cq_handle`},
	{GetContext{}, "ib_uverbs_get_context", 8, `response`},
	{GetContextResp{}, "ib_uverbs_get_context_resp", 8, `async_fd num_comp_vectors`},
	{QueryDevice{}, "ib_uverbs_query_device", 8, `response`},
	{QueryDeviceResp{}, "ib_uverbs_query_device_resp", 176, `fw_ver node_guid sys_image_guid max_mr_size page_size_cap vendor_id max_qp max_qp_wr
		device_cap_flags max_sge max_sge_rd max_cq max_cqe max_mr max_pd max_qp_rd_atom max_ee_rd_atom
		max_res_rd_atom max_qp_init_rd_atom max_ee_init_rd_atom atomic_cap max_mw max_mcast_grp
		max_mcast_qp_attach max_total_mcast_qp_attach max_ah max_srq max_srq_wr max_srq_sge max_pkeys
		local_ca_ack_delay phys_port_cnt`},
	{ExQueryDevice{}, "ib_uverbs_ex_query_device", 8, `comp_mask`},
	{ExQueryDeviceResp{}, "ib_uverbs_ex_query_device_resp", 304, `base comp_mask response_length timestamp_mask hca_core_clock device_cap_flags_ex cq_moderation_caps.max_cq_moderation_count cq_moderation_caps.max_cq_moderation_period`},
	{QueryPort{}, "ib_uverbs_query_port", 16, `response port_num`},
	{QueryPortResp{}, "ib_uverbs_query_port_resp", 40, `port_cap_flags max_msg_sz bad_pkey_cntr qkey_viol_cntr gid_tbl_len pkey_tbl_len lid sm_lid state max_mtu active_mtu lmc
		max_vl_num active_width active_speed phys_state link_layer`},
	{AllocPD{}, "ib_uverbs_alloc_pd", 8, `response`},
	{AllocPDResp{}, "ib_uverbs_alloc_pd_resp", 4, `pd_handle`},
	{DeallocPD{}, "ib_uverbs_dealloc_pd", 4, `pd_handle`},
	{RegMR{}, "ib_uverbs_reg_mr", 40, `response start length hca_va pd_handle access_flags`},
	{RegMRResp{}, "ib_uverbs_reg_mr_resp", 12, `mr_handle lkey rkey`},
	{ReregMR{}, "ib_uverbs_rereg_mr", 48, `response mr_handle flags start length hca_va pd_handle access_flags`},
	{ReregMRResp{}, "ib_uverbs_rereg_mr_resp", 8, `lkey rkey`},
	{DeregMR{}, "ib_uverbs_dereg_mr", 4, `mr_handle`},
	{AllocMW{}, "ib_uverbs_alloc_mw", 16, `response pd_handle mw_type`},
	{AllocMWResp{}, "ib_uverbs_alloc_mw_resp", 8, `mw_handle rkey`},
	{DeallocMW{}, "ib_uverbs_dealloc_mw", 4, `mw_handle`},
	{GlobalRoute{}, "ib_uverbs_global_route", 24, `dgid flow_label sgid_index hop_limit traffic_class`},
	{AHAttr{}, "ib_uverbs_ah_attr", 32, `grh dlid sl is_global port_num`},
	{CreateAH{}, "ib_uverbs_create_ah", 56, `pd_handle attr`},
	{CreateAHResp{}, "ib_uverbs_create_ah_resp", 4, `ah_handle`},
	{DestroyAH{}, "ib_uverbs_destroy_ah", 4, `ah_handle`},
	{AttachMcast{}, "ib_uverbs_attach_mcast", 24, `gid qp_handle mlid`},
	{AttachMcast{}, "ib_uverbs_detach_mcast", 24, `gid qp_handle mlid`},
	{CreateCompChannel{}, "ib_uverbs_create_comp_channel", 8, `response`},
	{CreateCompChannelResp{}, "ib_uverbs_create_comp_channel_resp", 4, `fd`},
	{CreateCQ{}, "ib_uverbs_create_cq", 32, `response user_handle cqe comp_vector comp_channel reserved`},
	{CreateCQResp{}, "ib_uverbs_create_cq_resp", 8, `cq_handle cqe`},
	{ExCreateCQ{}, "ib_uverbs_ex_create_cq", 32, `user_handle cqe comp_vector comp_channel comp_mask flags`},
	{ExCreateCQResp{}, "ib_uverbs_ex_create_cq_resp", 16, `base comp_mask response_length`},
	{ResizeCQ{}, "ib_uverbs_resize_cq", 16, `response cq_handle cqe`},
	{ResizeCQResp{}, "ib_uverbs_resize_cq_resp", 8, `cqe`},
	{ReqNotifyCQ{}, "ib_uverbs_req_notify_cq", 8, `cq_handle solicited_only`},
	{DestroyCQ{}, "ib_uverbs_destroy_cq", 16, `response cq_handle`},
	{DestroyCQResp{}, "ib_uverbs_destroy_cq_resp", 8, `comp_events_reported async_events_reported`},
	{CreateSRQ{}, "ib_uverbs_create_srq", 32, `response user_handle pd_handle max_wr max_sge srq_limit`},
	{CreateXSRQ{}, "ib_uverbs_create_xsrq", 48, `response user_handle srq_type pd_handle max_wr max_sge srq_limit`},
	{CreateSRQResp{}, "ib_uverbs_create_srq_resp", 16, `srq_handle max_wr max_sge srqn`},
	{ModifySRQ{}, "ib_uverbs_modify_srq", 16, `srq_handle attr_mask max_wr srq_limit`},
	{QuerySRQ{}, "ib_uverbs_query_srq", 16, `response srq_handle`},
	{QuerySRQResp{}, "ib_uverbs_query_srq_resp", 16, `max_wr max_sge srq_limit`},
	{DestroySRQ{}, "ib_uverbs_destroy_srq", 16, `response srq_handle`},
	{DestroySRQResp{}, "ib_uverbs_destroy_srq_resp", 4, `events_reported`},
	{CreateQP{}, "ib_uverbs_create_qp", 56, `response user_handle pd_handle send_cq_handle recv_cq_handle srq_handle max_send_wr max_recv_wr
		max_send_sge max_recv_sge max_inline_data sq_sig_all qp_type is_srq reserved`},
	{ExCreateQP{}, "ib_uverbs_ex_create_qp", 64, `user_handle pd_handle send_cq_handle recv_cq_handle srq_handle max_send_wr max_recv_wr max_send_sge
		max_recv_sge max_inline_data sq_sig_all qp_type is_srq comp_mask create_flags rwq_ind_tbl_handle
		source_qpn`},
	{CreateQPResp{}, "ib_uverbs_create_qp_resp", 32, `qp_handle qpn max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data`},
	{ExCreateQPResp{}, "ib_uverbs_ex_create_qp_resp", 40, `base comp_mask response_length`},
	{QPDest{}, "ib_uverbs_qp_dest", 32, `dgid flow_label dlid sgid_index hop_limit traffic_class sl is_global port_num`},
	{QueryQP{}, "ib_uverbs_query_qp", 16, `response qp_handle attr_mask`},
	{QueryQPResp{}, "ib_uverbs_query_qp_resp", 128, `dest alt_dest max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data qkey rq_psn
		sq_psn dest_qp_num qp_access_flags pkey_index alt_pkey_index qp_state cur_qp_state path_mtu
		max_rd_atomic max_dest_rd_atomic min_rnr_timer port_num timeout retry_cnt rnr_retry sq_sig_all`},
	{ModifyQP{}, "ib_uverbs_modify_qp", 112, `dest alt_dest qp_handle attr_mask qkey rq_psn sq_psn dest_qp_num qp_access_flags pkey_index
		alt_pkey_index qp_state cur_qp_state path_mtu path_mig_state en_sqd_async_notify max_rd_atomic
		max_dest_rd_atomic min_rnr_timer port_num timeout retry_cnt rnr_retry`},
	{ExModifyQP{}, "ib_uverbs_ex_modify_qp", 120, `base rate_limit`},
	{ExModifyQPResp{}, "ib_uverbs_ex_modify_qp_resp", 8, `comp_mask response_length`},
	{DestroyQP{}, "ib_uverbs_destroy_qp", 16, `response qp_handle`},
	{DestroyQPResp{}, "ib_uverbs_destroy_qp_resp", 4, `events_reported`},
	{PostSend{}, "ib_uverbs_post_send", 24, `response qp_handle wr_count sge_count wqe_size`},
	{PostSendResp{}, "ib_uverbs_post_send_resp", 4, `bad_wr`},
	{MMInfo{}, "mminfo", 16, `offset size`},
	{RxeCreateAHResp{}, "rxe_create_ah_resp", 8, `ah_num`},
	{RxeCreateCQResp{}, "rxe_create_cq_resp", 16, `mi`},
	{RxeCreateCQResp{}, "rxe_resize_cq_resp", 16, `mi`},
	{RxeCreateQPResp{}, "rxe_create_qp_resp", 32, `rq_mi sq_mi`},
	{RxeCreateSRQResp{}, "rxe_create_srq_resp", 24, `mi srq_num`},
	{RxeModifySRQ{}, "rxe_modify_srq_cmd", 8, `mmap_info_addr`},
}
