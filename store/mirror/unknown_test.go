package mirror_test

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// envelope is a record of a kind of a newer build.
func envelope(t *testing.T, schema uint32, closing bool) string {
	t.Helper()
	raw, err := proto.Marshal(&model.RecordValue{Schema: schema, Closing: closing})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw) + "\xfa\x01\x01x" // field 31, which this build does not know
}

// covered returns the namespaces whose proxies are refused.
func covered(s *mirror.Snapshot) (all []string) {
	for _, namespace := range []string{"istio-system", "other", "shop"} {
		if _, is := s.Covered(namespace); is {
			all = append(all, namespace)
		}
	}
	return all
}

// A kind that this build does not know leaves a replica ready, whether it runs or starts. A record of a closing kind,
// or an unreadable one, covers its namespace; in the root namespace it covers all. It ends when the record is removed.
func TestUnknownKinds(t *testing.T) {
	for name, c := range map[string]struct {
		path, value string
		closes      string // namespaces
	}{
		"skippable":               {"Novel///shop/x", envelope(t, model.Schema, false), ""},
		"closing":                 {"Novel///shop/x", envelope(t, model.Schema, true), "shop"},
		"closing, of the root":    {"Novel///istio-system/x", envelope(t, model.Schema+1, true), "istio-system other shop"},
		"closing, of the mesh":    {"Novel////x", envelope(t, model.Schema, true), "istio-system other shop"},
		"not readable":            {"Novel///shop/bad", "\xff\xff", "shop"},
		"of a schema yet to come": {"Novel///shop/x", envelope(t, model.Schema+2, false), "shop"},
	} {
		t.Run(name, func(t *testing.T) {
			s, e := etcd(t)
			first := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 3, 80)})
			runs := start(t, s.Connect())
			runs.reach(first)
			s.Put("records/"+c.path, c.value)
			second := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 1, 81)})
			runs.reach(second)
			starts := start(t, s.Connect())
			starts.reach(second)
			for _, m := range []*running{runs, starts} {
				if err := m.Ready(); err != nil {
					t.Errorf("ready: %v", err)
				}
				if u := m.Current().Unknown(); len(u) != 1 || u[0].Path != c.path {
					t.Errorf("unknown: %v", u)
				}
				if got := joined(covered(m.Current())); got != c.closes {
					t.Errorf("closed for %q, want %q", got, c.closes)
				}
			}
			s.Delete(s.Prefix()+"records/"+c.path, "")
			third := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 1, 82)})
			for _, m := range []*running{runs, starts} {
				if now := m.reach(third).New; len(covered(now)) != 0 || len(now.Unknown()) != 0 {
					t.Errorf("after it is gone: %v", now.Unknown())
				}
			}
		})
	}
}

func joined(all []string) (out string) {
	for i, one := range all {
		if i > 0 {
			out += " "
		}
		out += one
	}
	return out
}

// A replica that starts from its disk is closed for the same proxies as before.
func TestUnknownKindsOnDisk(t *testing.T) {
	s, e := etcd(t)
	s.Put("records/Novel///shop/x", envelope(t, model.Schema, true))
	first := s.MustCommit(kv.Batch{Epoch: e, Puts: services(t, 0, 3, 80)})
	m := start(t, s.Connect())
	m.reach(first)
	raw, err := mirror.EncodeSnapshot(m.Current())
	if err != nil {
		t.Fatal(err)
	}
	again, err := mirror.DecodeSnapshot(raw)
	if err != nil || joined(covered(again)) != "shop" {
		t.Errorf("closed for %v, %v", covered(again), err)
	}
}

// A newer build has written tens of thousands of objects of its own kind: the snapshot that an older build writes to
// disk can be read again.
func TestManyUnknownKindsOnDisk(t *testing.T) {
	var many []model.Unknown
	for i := range 30_000 {
		many = append(many, model.Unknown{Path: fmt.Sprintf("Novel///shop/object-%d", i), Namespace: "shop"})
	}
	raw, err := mirror.EncodeUnknown(many)
	if err != nil {
		t.Fatal(err)
	}
	again, err := mirror.DecodeSnapshot(raw)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(again.Unknown(), many) {
		t.Errorf("%d are read of %d", len(again.Unknown()), len(many))
	}
}
