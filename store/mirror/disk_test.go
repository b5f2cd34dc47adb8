package mirror_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// eventually waits until a loop has reached a state.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx := within(t)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("never: " + what)
		}
	}
}

// saved runs a replica with a disk until the snapshot at a revision is there, and ends it.
func saved(t *testing.T, s interface{ Connect() *kv.Store }, disk *mirror.Disk, revision int64) *mirror.Snapshot {
	t.Helper()
	m := startWith(t, s.Connect(), disk)
	snapshot := m.reach(revision).New
	eventually(t, "the snapshot on disk", func() bool {
		head, _, err := mirror.ReadDisk(disk.Path)
		return err == nil && head == revision
	})
	m.pause()
	return snapshot
}

func diskIn(t *testing.T) *mirror.Disk {
	return &mirror.Disk{Path: filepath.Join(t.TempDir(), "snapshot"), Mesh: "m", Every: 10 * time.Millisecond}
}

// A replica that starts while etcd is away serves its last snapshot, byte by byte; when etcd is back, it applies only
// the difference.
func TestStartFromDisk(t *testing.T) {
	s, e := etcd(t)
	first := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 200, 80)})
	disk := diskIn(t)
	before := saved(t, s, disk, first)
	source := s.Connect()
	s.Stop()
	m := startWith(t, source, disk)
	change := m.reach(first)
	wantSame(t, "from disk", change.New, before)
	if err := m.Ready(); err != nil {
		t.Fatalf("ready: %v", err)
	}
	eventually(t, "the status says that the snapshot is from disk", func() bool { return !m.Status().Restored.IsZero() })
	s.Restart(s.Dir())
	second := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 1, 81)})
	if c := m.reach(second); len(c.Edits) != 1 {
		t.Fatalf("%d edits for one", len(c.Edits))
	}
	eventually(t, "the status is etcd's", func() bool { return m.Status().Restored.IsZero() })
}

// A file that is damaged, cut, of another mesh, too old, too large or not a file is not used, and the log names it with
// the reason. The replica is then not ready.
func TestDiskIsRefused(t *testing.T) {
	s, e := etcd(t)
	revision := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 20, 80)})
	disk := diskIn(t)
	saved(t, s, disk, revision)
	good, err := os.ReadFile(disk.Path)
	if err != nil {
		t.Fatal(err)
	}
	source := s.Connect()
	s.Stop()
	corrupt := bytes.Clone(good)
	corrupt[len(corrupt)/2] ^= 1
	cases := map[string]struct {
		content []byte
		edit    func(*mirror.Disk)
		make    func(path string) error // in the place of the content
		reason  string                  // empty: it depends on the changed bit
	}{
		"a changed bit":   {content: corrupt},
		"cut":             {content: good[:len(good)-40], reason: "record 20 of 20"},
		"something after": {content: append(bytes.Clone(good), 'x'), reason: "damaged"},
		"no snapshot":     {content: []byte("hello"), reason: "no snapshot that this version reads"},
		"another mesh":    {content: good, edit: func(d *mirror.Disk) { d.Mesh = "other" }, reason: "it is of mesh"},
		"too old":         {content: good, edit: func(d *mirror.Disk) { d.MaxAge = time.Nanosecond }, reason: "at most 1ns are allowed"},
		"a pipe":          {make: func(path string) error { return syscall.Mkfifo(path, 0o600) }, reason: "no regular file"},
		"a link":          {make: func(path string) error { return os.Symlink(disk.Path, path) }, reason: "symbolic link"},
		"too large":       {content: good, make: func(path string) error { return os.Truncate(path, 1<<40) }, reason: "bytes, at most"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := diskIn(t)
			if c.edit != nil {
				c.edit(d)
			}
			var err error
			if c.content != nil {
				err = os.WriteFile(d.Path, c.content, 0o600)
			}
			if c.make != nil {
				err = errors.Join(err, c.make(d.Path))
			}
			if err != nil {
				t.Fatal(err)
			}
			m := startWith(t, source, d)
			receive(t, "loss of contact", m.contact)
			m.pause() // after it has read the disk
			if err := m.Ready(); m.Current() != nil || err == nil || !strings.Contains(err.Error(), "nothing was read yet") {
				t.Fatalf("ready: %v, snapshot %v", err, m.Current())
			}
			if log := m.log.String(); !strings.Contains(log, "the snapshot on disk is not used") || !strings.Contains(log, d.Path) || !strings.Contains(log, c.reason) {
				t.Errorf("want %q of %s, the log says\n%s", c.reason, d.Path, log)
			}
		})
	}
}

// If another etcd answers after a start from disk, there is an alarm, and the snapshot stays.
func TestDiskRemembersTheStore(t *testing.T) {
	s, e := etcd(t)
	disk := diskIn(t)
	revision := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 20, 80)})
	before := saved(t, s, disk, revision)
	source := s.Connect()
	s.Stop()
	m := startWith(t, source, disk)
	m.reach(revision)
	s.Restart(t.TempDir())
	if err := receive(t, "an alarm", m.alarms); !errors.Is(err, kv.ErrClusterChanged) {
		t.Fatalf("alarm: %v", err)
	}
	wantSame(t, "the last snapshot", m.Current(), before)
}

// The snapshot on disk is private, and replaced as a whole.
func TestDiskFile(t *testing.T) {
	s, e := etcd(t)
	disk := diskIn(t)
	saved(t, s, disk, s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 5, 80)}))
	info, err := os.Stat(disk.Path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Dir(disk.Path))
	if err != nil || len(entries) != 1 {
		t.Fatalf("left behind: %v, %v", entries, err)
	}
}

// A disk without room is left alone, and the snapshot is written once there is some.
func TestDiskWithoutRoom(t *testing.T) {
	s, e := etcd(t)
	disk := diskIn(t)
	var asked atomic.Int32
	var roomy atomic.Bool
	disk.Room = func() string {
		asked.Add(1)
		if roomy.Load() {
			return ""
		}
		return "the disk is full"
	}
	revision := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 5, 80)})
	m := startWith(t, s.Connect(), disk)
	m.reach(revision)
	was := asked.Load()
	eventually(t, "the disk is asked again", func() bool { return asked.Load() > was+1 })
	if _, err := os.Stat(disk.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("written without room: %v", err)
	}
	roomy.Store(true)
	eventually(t, "the snapshot is written", func() bool {
		_, err := os.Stat(disk.Path)
		return err == nil
	})
}

// A snapshot of a newer build is reported as such, by its own format or by that of a record; a damaged one is not.
func TestSnapshotOfANewerBuild(t *testing.T) {
	raw, err := mirror.EncodeSnapshot(mirror.Empty().Apply(7, []model.Record{service(t, "a", 80)}, nil).New)
	if err != nil {
		t.Fatal(err)
	}
	record := []byte{8, model.Schema} // as it begins: field 1, the schema
	for _, c := range []struct {
		name, was, is string
		newer         bool
	}{
		{"of a later form", "snapshot 1\n", "snapshot 2\n", true},
		{"a record of a later schema", string(record), string([]byte{8, model.Schema + 2}), true},
		{"of no form", "snapshot 1\n", "snapshot x\n", false},
		{"a record of no schema", string(record), string([]byte{8, 0}), false},
	} {
		changed := bytes.Replace(raw, []byte(c.was), []byte(c.is), 1)
		if _, err := mirror.DecodeSnapshot(changed); err == nil || bytes.Equal(changed, raw) || errors.Is(err, model.ErrNewer) != c.newer {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func FuzzReadSnapshot(f *testing.F) {
	s := mirror.Empty().Apply(7, []model.Record{service(f, "a", 80), endpoints(f, "a", "10.0.0.1")}, nil).New
	raw, err := mirror.EncodeSnapshot(s)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(raw[:60])
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := mirror.DecodeSnapshot(raw)
		if err != nil {
			return
		}
		again, err := mirror.EncodeSnapshot(got)
		if err != nil {
			t.Fatal(err)
		}
		back, err := mirror.DecodeSnapshot(again)
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, "encoded again", got, back)
	})
}
