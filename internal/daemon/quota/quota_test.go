package quota

import (
	"testing"
	"time"
)

const some, other = 100_000, 100_001 // users

// TestQuota takes the maximum: one user gets the limit over all connections. All users together get everything
// except the reserve; root also gets the reserve.
func TestQuota(t *testing.T) {
	var each, all Amounts
	each[QPs], all[QPs] = 50, 80
	l := New(each, all, nil)
	take := func(a *Account, most int) (n int) {
		for n < most && a.Take(QPs, 1) {
			n++
		}
		return n
	}
	a, b, c, root := l.Open(some), l.Open(some), l.Open(other), l.Open(0)
	for _, step := range []struct {
		who  string
		a    *Account
		most int
		want int
	}{
		{"first connection", a, 30, 30}, {"second connection", b, 1000, 20}, {"another user", c, 1000, 20}, {"root", root, 1000, 10},
	} {
		if n := take(step.a, step.most); n != step.want {
			t.Errorf("%s: %d, want %d", step.who, n, step.want)
		}
	}
	if u := l.Usage(); len(u) != 3 || u[1].UID != some || u[1].Used[QPs] != 50 || u[1].May[QPs] != 50 || u[0].May[QPs] != 0 {
		t.Errorf("%+v", u)
	}
	a.Close()
	a.Close()
	a.Add(QPs, -5)                   // ignored: the account is closed
	if n := take(b, 1000); n != 20 { // 70 for all unprivileged users, of which others have 30
		t.Errorf("%d after the first connection is closed", n)
	}
	for _, x := range []*Account{b, c, root} {
		x.Close()
	}
	if len(l.users) != 0 || l.used != (Amounts{}) {
		t.Errorf("%d users and %v are left", len(l.users), l.used)
	}
}

// TestDaemonsKinds checks that the daemon's kinds are counted over all NICs.
func TestDaemonsKinds(t *testing.T) {
	var each Amounts
	each[Descriptors], each[PDs] = 10, 1
	daemon := New(each, Amounts{}, nil)
	nics := []*Ledger{New(each, Amounts{}, daemon), New(each, Amounts{}, daemon)}
	a, b := nics[0].Open(some), nics[1].Open(some)
	if !a.Take(Descriptors, 6) || b.Take(Descriptors, 6) || !b.Take(Descriptors, 4) {
		t.Error("descriptors are counted by NIC")
	}
	if !a.Take(PDs, 1) || !b.Take(PDs, 1) {
		t.Error("protection domains are not counted by NIC")
	}
	a.Close()
	if got := daemon.Usage()[0].Used[Descriptors]; got != 4 {
		t.Errorf("%d descriptors", got)
	}
}

// TestSlots checks the limit on blocking accesses of a user over all connections.
func TestSlots(t *testing.T) {
	l := New(Amounts{}, Amounts{}, nil)
	accounts := []*Account{l.Open(some), l.Open(some)}
	done := make(chan struct{})
	for i := range slots {
		if !accounts[i%2].Accesses().Enter(done) {
			t.Fatal(i)
		}
	}
	close(done)
	entered := 0
	for range 100 { // select chooses at random
		if accounts[0].Accesses().Enter(done) {
			entered++
		}
	}
	if entered != 0 {
		t.Error("one more has begun")
	}
	for range slots {
		accounts[0].Accesses().Leave()
	}
}

// TestDebt: processor time that the daemon spends for a user is limited over all connections of the user, and repaid by time.
func TestDebt(t *testing.T) {
	l := New(Amounts{}, Amounts{}, nil)
	a, b, other := l.Open(7), l.Open(7), l.Open(8)
	now := time.Unix(1000, 0)
	a.Spend(now, workBurst)
	if d := b.Debt(now); d != 0 {
		t.Errorf("a burst costs %v", d)
	}
	b.Spend(now, time.Second)
	if d := a.Debt(now); d != 4*time.Second || other.Debt(now) != 0 {
		t.Errorf("a second costs %v, others %v", d, other.Debt(now))
	}
	if d := a.Debt(now.Add(3 * time.Second)); d != time.Second {
		t.Errorf("%v remain", d)
	}
	if now = now.Add(time.Hour); a.Debt(now) != 0 {
		t.Error("an hour has not repaid it")
	}
	if a.Spend(now, time.Second/2); a.Debt(now) != 0 {
		t.Error("old time counts")
	}
}
