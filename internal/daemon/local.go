package daemon

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"roced.io/roced/internal/base/abi/uverbs"
)

// socket returns the path of a verbs device.
func (d *Daemon) socket(index int) string {
	return filepath.Join(d.cfg.RunDir, fmt.Sprintf("uverbs%d", index))
}

// ShareTurns lets clients of this process run the turns of the NICs on their own threads, until Close.
func (d *Daemon) ShareTurns() {
	for _, n := range d.nics() {
		for _, dev := range n.devices {
			uverbs.SetTurn(d.socket(dev.shown.Index), n.shard.Turn)
		}
	}
}

// unshareTurns reverses ShareTurns.
func (d *Daemon) unshareTurns() {
	for _, n := range d.nics() {
		for _, dev := range n.devices {
			uverbs.SetTurn(d.socket(dev.shown.Index), nil)
		}
	}
}

// readyLook is the interval between two checks of Ready.
const readyLook = 5 * time.Millisecond

// Ready waits until all links are active.
func (d *Daemon) Ready(ctx context.Context) error {
	for _, n := range d.nics() {
		for {
			p, err := n.portShown(ctx)
			if err != nil {
				return err
			}
			if p.Active {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("NIC %s: the link is down: %w", n.cfg.Name, ctx.Err())
			case <-time.After(readyLook):
			}
		}
	}
	return nil
}
