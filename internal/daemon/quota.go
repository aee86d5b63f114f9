package daemon

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/config"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/internal/daemon/ucma"
	"roced.io/roced/rocev2"
)

// nicLimits limits the objects of one NIC, over all users.
var nicLimits = rocev2.Limits{QPs: 1 << 16, CQs: 1 << 16, SRQs: 1 << 14, MRs: 1 << 18, MWs: 1 << 18, PDs: 1 << 15, AHs: 1 << 17}

// ownFiles is the number of file descriptors that the daemon reserves for itself: NICs, captures and so on.
const ownFiles = 256

// Limits of the daemon's resources that have no setting.
const (
	adminConnections     = 256
	adminConnectionsEach = 32
	groupsEach           = rocev2.MaxGroups / 4 // multicast groups
	cmIDs                = ucma.MaxConns / 2    // half: as many connections may be ending
	cmEndingEach         = cmIDs / 4
)

// daemonQuota returns the ledger of the resources that all NICs share.
func daemonQuota(l *config.Limits) *quota.Ledger {
	each, all := daemonAmounts(l)
	return quota.New(each, all, nil)
}

// daemonAmounts returns the limits of each user, and the capacity.
func daemonAmounts(l *config.Limits) (each, all quota.Amounts) {
	each[quota.CMDevices], each[quota.CMIDs], all[quota.CMIDs] = int64(l.Connections), int64(l.QPs), cmIDs
	each[quota.CMEnding], all[quota.CMEnding] = cmEndingEach, cmIDs
	each[quota.NetlinkSockets] = int64(l.Connections)
	each[quota.AdminConnections], all[quota.AdminConnections] = adminConnectionsEach, adminConnections
	all[quota.Maps] = mostMaps()
	each[quota.Maps] = all[quota.Maps] / 2
	each[quota.Groups], all[quota.Groups] = groupsEach, rocev2.MaxGroups
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil && files.Cur < 1<<30 {
		all[quota.Descriptors] = max(int64(files.Cur)-ownFiles, int64(files.Cur)/2)
		each[quota.Descriptors] = all[quota.Descriptors] / 2
	}
	if l.Descriptors > 0 {
		each[quota.Descriptors] = int64(l.Descriptors)
	}
	return each, all
}

// mostMaps returns the maximum number of client mappings. The daemon keeps an eighth of the kernel's limit.
func mostMaps() int64 {
	const usual = 65530 // DEFAULT_MAX_MAP_COUNT
	most := int64(usual)
	if text, err := os.ReadFile("/proc/sys/vm/max_map_count"); err == nil {
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
			most = n
		}
	}
	return most - most/8
}

// nicQuota returns the ledger of one NIC's objects.
func (d *Daemon) nicQuota(l rocev2.Limits) *quota.Ledger {
	var all quota.Amounts
	for k, n := range map[quota.Kind]int{quota.QPs: l.QPs, quota.CQs: l.CQs, quota.SRQs: l.SRQs, quota.MRs: l.MRs,
		quota.MWs: l.MWs, quota.PDs: l.PDs, quota.AHs: l.AHs} {
		all[k] = int64(n)
	}
	each := limitsOf(&d.live.Load().Limits)
	return quota.New(each.Amounts(), all, d.quota)
}

// users returns the usage of each user, per NIC and for the daemon.
func (d *Daemon) users() []api.Resource {
	out := []api.Resource{}
	add := func(nic string, l *quota.Ledger) {
		for _, u := range l.Usage() {
			if used := u.Used.Map(); len(used) > 0 {
				out = append(out, api.Resource{NIC: nic, UID: u.UID, User: &api.User{Used: used, May: u.May.Map()}})
			}
		}
	}
	for _, n := range d.nics() {
		add(n.cfg.Name, n.quota)
	}
	add("", d.quota)
	return out
}
