package mirror_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/mirror"
)

// After a restore of etcd from a backup, in any way, the newer state that was read stays in use, over restarts of the
// replica too, until a leader has compared the store with its sources. Partly written state does not count.
// Promise: security-keys.md#changes-in-etcd-by-accident
func TestRestoredEtcd(t *testing.T) {
	for _, name := range []string{"same id", "new cluster id", "bumped"} {
		t.Run(name, func(t *testing.T) {
			s, e := etcd(t)
			s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 30, 80)})
			restored := s.Restored()[name]
			s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 5, 81)})
			last := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 30, 31, 80)})
			disk := &mirror.Disk{Path: filepath.Join(t.TempDir(), "snapshot"), Mesh: "m"}
			m := startWith(t, s.Connect(), disk)
			before := m.reach(last).New
			frozen := func(m *running) {
				t.Helper()
				err := receive(t, "the alarm", m.alarms)
				if !errors.Is(err, kv.ErrRolledBack) || !strings.Contains(err.Error(), "navarchctl store adopt --over "+m.Status().Place.String()) {
					t.Fatalf("alarm %v", err)
				}
				wantSame(t, "what stands", m.Current(), before)
				if err := m.Ready(); err != nil {
					t.Fatal(err)
				}
			}
			s.Restart(restored)
			frozen(m)
			m.pause()
			source := counting(s.Connect())
			again := startWith(t, source, disk)
			frozen(again)
			half := s.Interrupted(s.Elect("b"), services(t, 0, 2, 85), nil)
			source.checks(t, 3)
			if len(again.alarms) != 0 || again.Current().Revision() != last {
				t.Fatalf("a batch that is half written ended the alarm: %+v", again.Status())
			}
			now := s.MustCommit(kv.Batch{Epoch: s.Elect("c"), After: half, Puts: services(t, 0, 1, 90)})
			if err := receive(t, "the end of the alarm", again.alarms); err != nil {
				t.Fatal(err)
			}
			read, _ := again.until(now)
			fresh, _ := start(t, s.Connect()).until(now)
			wantSame(t, "what a replica that remembers nothing reads", read, fresh)
		})
	}
}

// until returns the snapshot at exactly a revision, which may be lower after a restore, and the number of edits before
// it.
func (r *running) until(revision int64) (s *mirror.Snapshot, edits int) {
	r.t.Helper()
	for {
		c := receive(r.t, "a revision", r.changes)
		if edits += len(c.Edits); c.New.Revision() == revision {
			return c.New, edits
		}
	}
}

// A restore that lost nothing goes on without an alarm, whatever became of revisions and of the cluster's id.
// Promise: security-keys.md#changes-in-etcd-by-accident
func TestRestoredWithoutLoss(t *testing.T) {
	for _, name := range []string{"same id", "new cluster id", "bumped"} {
		t.Run(name, func(t *testing.T) {
			s, e := etcd(t)
			s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 30, 80)})
			for range 50 { // so that another cluster's revisions are lower
				s.Put("elsewhere", "x")
			}
			last := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 5, 81)})
			restored := s.Restored()[name]
			m := start(t, s.Connect())
			m.reach(last)
			receive(t, "the first snapshot", m.changes)
			s.Restart(restored)
			now := s.MustCommit(kv.Batch{Epoch: s.Elect("b"), Puts: services(t, 0, 1, 90)})
			if _, edits := m.until(now); edits != 1 || len(m.alarms) != 0 {
				t.Fatalf("%d edits, %d alarms", edits, len(m.alarms))
			}
		})
	}
}

// The etcd of another mesh answers, with newer heads: it is never accepted, unless an operator confirms it.
func TestAnotherStoreAnswers(t *testing.T) {
	s, e := etcd(t)
	last := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 30, 80)})
	source := counting(s.Connect())
	m := start(t, source)
	before := m.reach(last).New
	receive(t, "the first snapshot", m.changes)
	other := t.TempDir()
	s.Restart(other)
	for port := range uint32(10) {
		s.MustCommit(kv.Batch{Epoch: s.Elect("a"), Puts: services(t, 0, 2, 80+port)})
	}
	if err := receive(t, "the alarm", m.alarms); !errors.Is(err, kv.ErrClusterChanged) {
		t.Fatalf("alarm %v", err)
	}
	if m.Current() != before || m.Ready() != nil || !errors.Is(m.Status().Alarm, kv.ErrClusterChanged) {
		t.Fatalf("the last snapshot does not stand: %+v", m.Status())
	}
	s.Restart(s.Dir())
	if err := receive(t, "the end of the alarm", m.alarms); err != nil {
		t.Fatal(err)
	}
	now := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 1, 82)})
	if _, edits := m.until(now); edits != 1 {
		t.Fatalf("%d edits", edits)
	}
	s.Restart(other)
	receive(t, "the alarm again", m.alarms)
	b := s.Elect("b")
	s.MustCommit(kv.Batch{Epoch: b, Puts: services(t, 0, 1, 90)})
	source.checks(t, 3)
	if len(m.changes) != 0 || len(m.alarms) != 0 {
		t.Fatalf("%d changes, %d alarms", len(m.changes), len(m.alarms))
	}
	adopted := place(t, m.Status().Alarm).Next(kv.Place{}, time.Now())
	head, err := s.Commit(within(t), kv.Batch{Epoch: b, Place: adopted})
	if err != nil {
		t.Fatal(err)
	}
	if err := receive(t, "the end of the alarm", m.alarms); err != nil {
		t.Fatal(err)
	}
	read, _ := m.until(head.Revision)
	wantSame(t, "adopted and listed", read, start(t, s.Connect()).reach(head.Revision).New)
}

// Heads of leaders of an older build have no place, and are compared by revision and cluster, as that build does.
// Switching to it and back raises no alarm.
func TestHeadsOfAnOlderBuild(t *testing.T) {
	s, e := etcd(t)
	older := func(port uint32) int64 {
		t.Helper()
		head, err := s.Commit(within(t), kv.Batch{Epoch: e, Puts: services(t, 0, 1, port)})
		if err != nil || head.Place.Known() {
			t.Fatalf("%v: %v", head.Place, err)
		}
		return head.Revision
	}
	older(80)
	old := s.Backup()
	m := start(t, s.Connect())
	m.reach(older(81))
	m.reach(s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 1, 82)}))
	var first kv.Place
	eventually(t, "the place", func() bool { first = m.Status().Place; return first.Known() })
	m.reach(older(83))
	eventually(t, "the head without a place", func() bool { return !m.Status().Head.Place.Known() })
	if m.Status().Place != first {
		t.Errorf("an older leader made it forget %v", first)
	}
	before := m.reach(s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 1, 84)})).New
	eventually(t, "the place of another chain", func() bool { now := m.Status().Place; return now.Known() && now.Chain != first.Chain })
	if len(m.alarms) != 0 {
		t.Errorf("%d alarms", len(m.alarms))
	}
	s.Restart(old)
	if err := receive(t, "the alarm", m.alarms); !errors.Is(err, kv.ErrRegressed) || m.Current() != before {
		t.Fatal(err)
	}
}

// The place in a file's first line is used only if the whole file is valid.
func TestDamagedMemory(t *testing.T) {
	s, e := etcd(t)
	s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 3, 80)})
	restored := s.Backup()
	last := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 3, 81)})
	disk := &mirror.Disk{Path: filepath.Join(t.TempDir(), "snapshot"), Mesh: "m"}
	m := startWith(t, s.Connect(), disk)
	m.reach(last)
	eventually(t, "the place", func() bool { return m.Status().Place.Known() })
	m.pause()
	remembers, err := mirror.New(mirror.Config{Source: s, Disk: disk})
	if err != nil || remembers.Status().Place != m.Status().Place {
		t.Fatalf("remembers %v, it was at %v, %v", remembers.Status().Place, m.Status().Place, err)
	}
	raw, err := os.ReadFile(disk.Path)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)-1]++
	if err := os.WriteFile(disk.Path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	s.Restart(restored)
	again := startWith(t, s.Connect(), disk)
	again.reach(1)
	if len(again.alarms) != 0 {
		t.Errorf("alarm %v", <-again.alarms)
	}
}

// place is the one that an alarm names.
func place(t *testing.T, alarm error) kv.Place {
	t.Helper()
	_, rest, _ := strings.Cut(alarm.Error(), "--over ")
	p, err := kv.ParsePlace(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// counted is a store that reports each request that it has answered.
type counted struct {
	mirror.Source
	answered chan struct{}
}

func counting(s mirror.Source) counted { return counted{s, make(chan struct{}, 1)} }

func (c counted) Stat(ctx context.Context) (kv.Stat, error) {
	defer func() {
		select {
		case c.answered <- struct{}{}:
		default:
		}
	}()
	return c.Source.Stat(ctx)
}

// checks waits until a mirror has processed n responses to successive requests.
func (c counted) checks(t *testing.T, n int) {
	t.Helper()
	for range n + 2 { // one may have waited here, and the last is not processed yet
		receive(t, "a check", c.answered)
	}
}
