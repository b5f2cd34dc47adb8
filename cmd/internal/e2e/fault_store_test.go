package e2e

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sim "navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/mirror"
)

// Fault 5: a replica is paused and loses its connection; meanwhile services come and go, and etcd's history is
// compacted. After it continues it lists again within 5 s, and removes exactly the deleted services from its proxies.
func TestFaultCompactedPastPausedReplica(t *testing.T) {
	parallel(t)
	const gone = 10 // services that go, and as many come
	n, proxies := sized(t, 50, 300, "services"), sized(t, 60, 2000, "proxies")
	etcd := kvtest.Start(t)
	direct, wire := "--etcd-endpoints="+etcd.Endpoint(), connect(t, etcd.Endpoint())
	dir := townFolder(t, n)
	start(t, "--roles=ingest", "--config-dir", dir, direct)
	paused, healthy := xdsReplica(t, wire.etcd()), xdsReplica(t, direct)
	eventually(t, patience, whole(t, paused, n, 1))
	eventually(t, patience, whole(t, healthy, n, 1))
	f := fleet(t, proxies, sim.Config{}, paused, healthy)

	var lag time.Duration
	reaches(t, f, 3, func() {
		if err := paused.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		wire.set(rule{refuse: true})
		wire.drop()
		write(t, dir, "town.yaml", town(gone, n+gone, 2))
		eventually(t, patience, whole(t, healthy, n, 2))
		write(t, dir, "town.yaml", town(gone, n+gone, 3))
		eventually(t, patience, whole(t, healthy, n, 3))
		stat, err := etcd.Stat(t.Context())
		if err == nil {
			err = etcd.Compact(t.Context(), stat.Revision)
		}
		if err == nil {
			err = paused.cmd.Process.Signal(syscall.SIGCONT)
		}
		if err != nil {
			t.Fatal(err)
		}
		wire.set(rule{})
		on := time.Now()
		eventually(t, patience, whole(t, paused, n, 3))
		lag = time.Since(on)
	})
	within(t, 5*time.Second, lag, "caught up")
	if !strings.Contains(paused.log.String(), "etcd compacted what was not read yet") {
		t.Error("the replica was not behind the compaction: the test shows nothing")
	}
	eventually(t, patience, func() error { // clusters go after the routes to them
		if removed := f.Stats().Types["CDS"].Removed; removed != uint64(proxies*gone) {
			return fmt.Errorf("%d clusters were removed, want %d of each of %d proxies", removed, gone, proxies)
		}
		return nil
	})
	unharmed(t, f)
	undisturbed(t, f)
}

// Fault 6: a replica's connection to etcd is cut into small pieces and reset at random places while the configuration
// changes. A mirror that reads over such a connection publishes every edit once and in order. The replica's proxies end
// with the same resources as those of a healthy one.
func TestFaultWatchCutAtRandom(t *testing.T) {
	parallel(t)
	const last = 15
	n, proxies := sized(t, 30, 200, "services"), sized(t, 60, 2000, "proxies")
	etcd := kvtest.Start(t)
	direct, wire := "--etcd-endpoints="+etcd.Endpoint(), connect(t, etcd.Endpoint())
	dir := townFolder(t, n)
	start(t, "--roles=ingest", "--config-dir", dir, direct)
	cut, healthy := xdsReplica(t, wire.etcd()), xdsReplica(t, direct)
	eventually(t, patience, whole(t, healthy, n, 1))
	eventually(t, patience, whole(t, cut, n, 1))
	f := fleet(t, proxies, sim.Config{}, cut, healthy)
	h := recordHistory(t, "http://"+wire.address)
	wire.set(rule{slice: 97, reset: 1 << 10, resets: 10})
	wire.drop()
	reaches(t, f, last, func() {
		for edition := 2; edition <= last; edition++ { // each is of one service: what is lost stays lost
			write(t, dir, "town.yaml", townBy(0, n, 0, func(i int) int {
				if i+2 <= edition {
					return i + 2
				}
				return 1
			}))
			eventually(t, patience, func() error {
				got, err := editions(t.Context(), healthy)
				if err == nil && got[edition4(edition)] != 1 {
					err = fmt.Errorf("edition %d is not served: %v", edition, got)
				}
				return err
			})
		}
	})
	stat, err := opened(t, etcd.Endpoint()).Stat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() error { return h.at(stat.Head.Revision) })
	h.check(t, last-1)
	if n := wire.resets.Load(); n < 10 {
		t.Errorf("only %d resets: the test shows less than it should", n)
	}
	t.Logf("%d changes published", len(h.changes))
	unharmed(t, f)
	undisturbed(t, f)
}

// history is the sequence of a mirror's publications.
type history struct {
	mu      sync.Mutex
	changes []mirror.Change
}

// recordHistory runs a mirror on an endpoint until the test ends.
func recordHistory(t *testing.T, endpoint string) *history {
	h := &history{}
	m, err := mirror.New(mirror.Config{Source: opened(t, endpoint), Logger: slog.New(slog.DiscardHandler), Hooks: mirror.Hooks{
		Published: func(c mirror.Change) { h.mu.Lock(); defer h.mu.Unlock(); h.changes = append(h.changes, c) }}})
	if err != nil {
		t.Fatal(err)
	}
	var over sync.WaitGroup
	over.Go(func() { _ = m.Run(t.Context()) }) // it ends with the context
	t.Cleanup(over.Wait)
	eventually(t, patience, m.Ready)
	return h
}

func (h *history) at(revision int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at := h.changes[len(h.changes)-1].New.Revision(); at < revision {
		return fmt.Errorf("at revision %d, want %d", at, revision)
	}
	return nil
}

// check fails the test unless every change begins where the previous one ended and goes forward, and the changes
// contain `edits` edits in all.
func (h *history) check(t *testing.T, edits int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	sum := 0
	for i, c := range h.changes[1:] {
		before := h.changes[i]
		if c.Old != before.New || c.New.Revision() <= before.New.Revision() {
			t.Errorf("change %d: from revision %d to %d, after %d", i, c.Old.Revision(), c.New.Revision(), before.New.Revision())
		}
		sum += len(c.Edits)
	}
	if sum != edits {
		t.Errorf("%d edits were published, %d were made", sum, edits)
	}
}

// Fault 8: etcd is over its quota and refuses every write (the real alarm). Reads work: proxies stay connected, and
// restarted processes are served, over mTLS with certificates of the mesh's CA. Certificates that cannot be recorded
// are refused with that reason. The leader retries at its pace, reports that, and writes once there is room; so does
// the CA.
func TestFaultStoreFull(t *testing.T) {
	parallel(t)
	n, proxies := sized(t, 30, 300, "services"), sized(t, 60, 2000, "proxies")
	etcd := kvtest.Start(t)
	store := "--etcd-endpoints=" + etcd.Endpoint()
	dir := townFolder(t, n)
	mesh := newEnrolment(t, store)
	leader := start(t, "--roles=ingest", "--config-dir", dir, store, mesh.kek)
	replica := mesh.replica(store)
	eventually(t, patience, whole(t, replica, n, 1))
	mesh.by(replica)
	f := mesh.fleet(proxies, sim.Config{}, replica)
	stat, err := etcd.Client().Status(t.Context(), etcd.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	full := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: stat.Header.MemberId, Alarm: pb.AlarmType_NOSPACE}
	if _, err := pb.NewMaintenanceClient(etcd.Client().ActiveConnection()).Alarm(t.Context(), full); err != nil {
		t.Fatal(err)
	}

	reaches(t, f, 2, func() {
		began := time.Now()
		write(t, dir, "town.yaml", town(0, n, 2))
		const failure = "a batch was not written, or not in full"
		eventually(t, patience, func() error {
			if strings.Count(leader.log.String(), failure) < 3 {
				return errors.New("the leader has not failed three times")
			}
			return nil
		})
		if tries, most := strings.Count(leader.log.String(), failure), 2+int(time.Since(began)/(250*time.Millisecond)); tries > most {
			t.Errorf("%d tries in %v", tries, time.Since(began))
		}
		if !strings.Contains(leader.log.String(), "database space exceeded") {
			t.Error("the leader does not say why")
		}
		got := resumed(t, f, proxies, func() { f.Reconnect(sim.All, sim.Reconnect{Cold: true, Now: true}) }).Total()
		if got.Resources < uint64(proxies*2*n) {
			t.Errorf("who starts again was sent %d resources", got.Resources)
		}
		fresh := mesh.replica(store)
		eventually(t, patience, whole(t, fresh, n, 1))
		_, _, err := mesh.first(t.Context(), replica.secure, "town", "newcomer")
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "space") {
			t.Errorf("a certificate that cannot be put on record: %v", err)
		}
		now, err := etcd.Stat(t.Context())
		if err == nil {
			err = etcd.Compact(t.Context(), now.Revision)
		}
		if err == nil {
			_, err = etcd.Client().AlarmDisarm(t.Context(), &clientv3.AlarmMember{MemberID: full.MemberID, Alarm: full.Alarm})
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	if err := leader.leading(); err != nil {
		t.Error(err)
	}
	eventually(t, patience, func() error { _, _, err := mesh.first(t.Context(), replica.secure, "town", "newcomer"); return err })
	unharmed(t, f)
	undisturbed(t, f)
}

// Fault 10: a replica starts while its link to etcd has 1 Mbit/s, with a complete pause in the middle of the list. It
// is not ready, and refuses proxies, until it has the whole configuration. Refused proxies connect to another replica,
// and all others keep theirs.
func TestFaultColdStartOnSlowStore(t *testing.T) {
	parallel(t)
	n, proxies := sized(t, 150, 400, "services"), sized(t, 40, 1000, "proxies that are there, and as many that come")
	etcd := kvtest.Start(t)
	direct, wire := "--etcd-endpoints="+etcd.Endpoint(), connect(t, etcd.Endpoint())
	dir := townFolder(t, n)
	start(t, "--roles=ingest", "--config-dir", dir, direct)
	fast := xdsReplica(t, direct)
	eventually(t, patience, whole(t, fast, n, 1))
	settled := fleet(t, proxies, sim.Config{}, fast)

	wire.set(rule{rate: 125_000})
	held := wire.holdAfter(16<<10, false)
	slow := xdsReplica(t, wire.etcd())
	select {
	case <-held:
	case <-time.After(patience):
		t.Fatal("it reads nothing")
	}
	eventually(t, patience, refuses(t, slow, "nothing was read yet"))
	newcomers := fleet(t, proxies, sim.Config{}, slow, fast)
	if ended := newcomers.Stats().Ended["Unavailable"]; ended == 0 {
		t.Errorf("nobody was turned away: %v", newcomers.Stats().Ended)
	}
	wire.set(rule{rate: 125_000})
	polls := 0
	eventually(t, patience, func() error {
		polls++
		got, err := editions(t.Context(), slow)
		if err == nil && got[edition4(1)] != n {
			t.Fatalf("it answers with a part: %v", got)
		}
		return err
	})
	t.Logf("complete after %d polls", polls)
	client := node("town", "client", "10.1.9.9")
	a, err := everything(t.Context(), fast.grpc, client)
	b, err2 := everything(t.Context(), slow.grpc, client)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	same(t, a, b)
	unharmed(t, settled)
	undisturbed(t, settled)
	unharmed(t, newcomers)
}
