package rdmacm

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// layouts lists the structures with their counterparts in C and the fields that are
// not blank, in order.
var layouts = []struct {
	v      any
	c      string
	fields string
}{
	{Hdr{}, "rdma_ucm_cmd_hdr", "cmd in out"},
	{CreateID{}, "rdma_ucm_create_id", "uid ps qp_type"},
	{CreateIDResp{}, "rdma_ucm_create_id_resp", "id"},
	{DestroyID{}, "rdma_ucm_destroy_id", "id"},
	{DestroyIDResp{}, "rdma_ucm_destroy_id_resp", "events_reported"},
	{DestroyIDResp{}, "rdma_ucm_migrate_resp", "events_reported"},
	{BindIP{}, "rdma_ucm_bind_ip", "addr id"},
	{Bind{}, "rdma_ucm_bind", "id addr_size addr"},
	{ResolveIP{}, "rdma_ucm_resolve_ip", "src_addr dst_addr id timeout_ms"},
	{ResolveAddr{}, "rdma_ucm_resolve_addr", "id timeout_ms src_size dst_size src_addr dst_addr"},
	{ResolveRoute{}, "rdma_ucm_resolve_route", "id timeout_ms"},
	{Query{}, "rdma_ucm_query", "id option"},
	{PathRec{}, "ib_user_path_rec", `dgid sgid flow_label reversible mtu pkey hop_limit traffic_class
		numb_path sl mtu_selector rate_selector rate packet_life_time_selector packet_life_time preference`},
	{QueryRouteResp{}, "rdma_ucm_query_route_resp", "node_guid ib_route src_addr dst_addr num_paths port_num ibdev_index"},
	{QueryAddrResp{}, "rdma_ucm_query_addr_resp", "node_guid port_num pkey src_size dst_size src_addr dst_addr ibdev_index"},
	{PathRecData{}, "ib_path_rec_data", "flags path_rec"},
	{ConnParam{}, "rdma_ucm_conn_param", `qp_num qkey private_data private_data_len srq responder_resources initiator_depth
		flow_control retry_count rnr_retry_count valid`},
	{UDParam{}, "rdma_ucm_ud_param", "qp_num qkey ah_attr private_data private_data_len"},
	{Connect{}, "rdma_ucm_connect", "conn_param id ece"},
	{Listen{}, "rdma_ucm_listen", "id backlog"},
	{Accept{}, "rdma_ucm_accept", "uid conn_param id ece"},
	{Reject{}, "rdma_ucm_reject", "id private_data_len reason private_data"},
	{Disconnect{}, "rdma_ucm_disconnect", "id"},
	{InitQPAttr{}, "rdma_ucm_init_qp_attr", "id qp_state"},
	{QPAttr{}, "ib_uverbs_qp_attr", `qp_attr_mask qp_state cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num
		qp_access_flags ah_attr alt_ah_attr pkey_index
		max_rd_atomic max_dest_rd_atomic min_rnr_timer port_num timeout
		retry_cnt rnr_retry`},
	{Notify{}, "rdma_ucm_notify", "id event"},
	{EventResp{}, "rdma_ucm_event_resp", "uid id event status param ece"},
	{SetOption{}, "rdma_ucm_set_option", "id level optname optlen"},
	{MigrateID{}, "rdma_ucm_migrate_id", "id fd"},
	{JoinMcast{}, "rdma_ucm_join_mcast", "uid id addr_size join_flags addr"},
	{JoinIPMcast{}, "rdma_ucm_join_ip_mcast", "uid addr id"},
}

// numbers are constants of the ABI with their names in C.
var numbers = []struct {
	c string
	n uint64
}{
	{"RDMA_USER_CM_ABI_VERSION", ABIVersion}, {"RDMA_MAX_PRIVATE_DATA", MaxPrivateData},
	{"RDMA_USER_CM_CMD_CREATE_ID", CmdCreateID}, {"RDMA_USER_CM_CMD_DESTROY_ID", CmdDestroyID},
	{"RDMA_USER_CM_CMD_BIND_IP", CmdBindIP}, {"RDMA_USER_CM_CMD_RESOLVE_IP", CmdResolveIP},
	{"RDMA_USER_CM_CMD_RESOLVE_ROUTE", CmdResolveRoute}, {"RDMA_USER_CM_CMD_QUERY_ROUTE", CmdQueryRoute},
	{"RDMA_USER_CM_CMD_CONNECT", CmdConnect}, {"RDMA_USER_CM_CMD_LISTEN", CmdListen},
	{"RDMA_USER_CM_CMD_ACCEPT", CmdAccept}, {"RDMA_USER_CM_CMD_REJECT", CmdReject},
	{"RDMA_USER_CM_CMD_DISCONNECT", CmdDisconnect}, {"RDMA_USER_CM_CMD_INIT_QP_ATTR", CmdInitQPAttr},
	{"RDMA_USER_CM_CMD_GET_EVENT", CmdGetEvent}, {"RDMA_USER_CM_CMD_SET_OPTION", CmdSetOption}, {"RDMA_USER_CM_CMD_NOTIFY", CmdNotify},
	{"RDMA_USER_CM_CMD_JOIN_IP_MCAST", CmdJoinIPMcast}, {"RDMA_USER_CM_CMD_LEAVE_MCAST", CmdLeaveMcast},
	{"RDMA_USER_CM_CMD_MIGRATE_ID", CmdMigrateID}, {"RDMA_USER_CM_CMD_QUERY", CmdQuery},
	{"RDMA_USER_CM_CMD_BIND", CmdBind}, {"RDMA_USER_CM_CMD_RESOLVE_ADDR", CmdResolveAddr},
	{"RDMA_USER_CM_CMD_JOIN_MCAST", CmdJoinMcast},
	{"RDMA_MC_JOIN_FLAG_FULLMEMBER", JoinFullMember}, {"RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER", JoinSendOnly},
	{"RDMA_PS_IPOIB", uint64(PSIPoIB)}, {"RDMA_PS_IB", uint64(PSIB)}, {"RDMA_PS_TCP", uint64(PSTCP)},
	{"RDMA_PS_UDP", uint64(PSUDP)},
	{"RDMA_USER_CM_QUERY_ADDR", QueryAddr}, {"RDMA_USER_CM_QUERY_PATH", QueryPath}, {"RDMA_USER_CM_QUERY_GID", QueryGID},
	{"RDMA_OPTION_ID", OptionID}, {"RDMA_OPTION_ID_TOS", OptionTOS},
	{"RDMA_OPTION_ID_REUSEADDR", OptionReuseAddr}, {"RDMA_OPTION_ID_AFONLY", OptionAFOnly},
	{"RDMA_OPTION_ID_ACK_TIMEOUT", OptionAckTimeout},
}

// describe renders the layout of a structure as encoding/binary packs it.
func describe(t *testing.T, v any, c, fields string) string {
	t.Helper()
	names := strings.Fields(fields)
	out := fmt.Sprintf("%s %d", c, binary.Size(v))
	typ := reflect.TypeOf(v)
	off := 0
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Name != "_" {
			if len(names) == 0 || !strings.EqualFold(strings.ReplaceAll(names[0], "_", ""), f.Name) {
				t.Fatalf("%s.%s stands where %s has %v", typ, f.Name, c, names)
			}
			out += fmt.Sprintf(" %s=%d", names[0], off)
			names = names[1:]
		}
		off += binary.Size(reflect.New(f.Type).Interface())
	}
	if len(names) > 0 {
		t.Fatalf("%s lacks %v", typ, names)
	}
	return out
}

// TestABI compares sizes, offsets and numbers with those that a C compiler finds in the kernel's header.
func TestABI(t *testing.T) {
	var src, want strings.Builder
	src.WriteString("#include <stdio.h>\n#include <stddef.h>\n#include <rdma/rdma_user_cm.h>\nint main(void)\n{\n")
	for _, l := range layouts {
		fmt.Fprintln(&want, describe(t, l.v, l.c, l.fields))
		fmt.Fprintf(&src, "printf(\"%s %%zu\", sizeof(struct %s));\n", l.c, l.c)
		for _, f := range strings.Fields(l.fields) {
			fmt.Fprintf(&src, "printf(\" %s=%%zu\", offsetof(struct %s, %s));\n", f, l.c, f)
		}
		src.WriteString("puts(\"\");\n")
	}
	for _, n := range numbers {
		fmt.Fprintf(&src, "printf(\"%s %%u\\n\", (unsigned)%s);\n", n.c, n.c)
		fmt.Fprintf(&want, "%s %d\n", n.c, n.n)
	}
	dir := t.TempDir()
	file, exe := filepath.Join(dir, "abi.c"), filepath.Join(dir, "abi")
	if err := os.WriteFile(file, []byte(src.String()+"return 0;\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-o", exe, file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := exec.Command(exe).Output()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(got), want.String()); d != "" {
		t.Errorf("C (-) and Go (+):\n%s", d)
	}
}
