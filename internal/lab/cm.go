package lab

import (
	"context"
	"path/filepath"
	"slices"

	"roced.io/roced/internal/daemon/api"
)

// LateRping is an error of rping after all pings. Its main thread closes the event channel while another thread is about to
// read the next event. A kernel with RDMA behaves the same.
const LateRping = "rdma_get_cm_event: Bad file descriptor"

// ListensCM waits until program p of host i listens with rdma_cm. The function ours reports whether an identifier belongs to p
// or to a process that p has started.
func (l *Lab) ListensCM(i int, p *Proc, ours func(api.Resource) bool) error {
	c := api.NewClient(filepath.Join(l.Host[i].RunDir, api.Socket))
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	return p.Ready("it listens", func() (bool, error) {
		var ids []api.Resource
		err := c.Get(ctx, &ids, "res", "cm_id")
		return slices.ContainsFunc(ids, func(r api.Resource) bool { return ours(r) && r.CMID.State == "LISTEN" }), err
	})
}
