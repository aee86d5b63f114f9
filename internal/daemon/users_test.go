package daemon

import (
	"log/slog"
	"net/http"
	"testing"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/config"
)

// TestUsersAreShown: the admin interface lists the usage of each user, per NIC and for the daemon.
func TestUsersAreShown(t *testing.T) {
	path, runDir := configFile(t)
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Start(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	conn, err := uverbs.Dial(runDir + "/uverbs0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, _, err := conn.Call(uverbs.Command(uverbs.ExtHello, 4096, uverbs.Hello{Version: uverbs.ExtVersion}), nil); err != nil {
		t.Fatal(err)
	}
	var res []api.Resource
	call(t, client(t, runDir), http.MethodGet, "/v1/res/user", "", http.StatusOK, &res)
	have := map[string]map[string]int64{}
	for _, r := range res {
		have[r.NIC] = r.User.Used
	}
	if have["rxe_a"]["connections"] != 1 || have["rxe_b"] != nil || have[""]["descriptors"] < 4 || have[""]["admin_connections"] != 1 {
		t.Errorf("%v", have)
	}
}
