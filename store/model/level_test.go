package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/origin"
)

// stored lists the kinds of record with their marks and levels (0: stored at every level). It is written out here,
// independently of the tables, so that a change of the tables must consider the builds that are already installed.
var stored = map[string]string{
	"Mesh":                  "skippable 0",
	"Service":               "skippable 0",
	"ServiceEntry":          "skippable 0",
	"Endpoints":             "skippable 0",
	"VirtualService":        "skippable 0",
	"DestinationRule":       "skippable 0",
	"Sidecar":               "skippable 0",
	"EnvoyFilter":           "skippable 0",
	"PeerAuthentication":    "closing 0",
	"AuthorizationPolicy":   "closing 0",
	"RequestAuthentication": "closing 0",
	"Secret":                "skippable 0",
	"Gateway":               "skippable 0",
	"SecretReader":          "skippable 0",
	"Workload":              "skippable 0",
	"ServiceAccount":        "skippable 0",
	"WorkloadGroup":         "skippable 0",
	"Namespace":             "skippable 0",
	"NetworkGateways":       "skippable 0",
	"Telemetry":             "skippable 0",
	"WasmPlugin":            "skippable 0",
	"TrafficExtension":      "skippable 0",
	"ProxyConfig":           "skippable 0",
}

// kindNow is a kind as the tables have it.
type kindNow struct {
	name  string
	mark  Mark
	level uint32
}

func (k kindNow) String() string {
	return fmt.Sprintf("%s %d", map[Mark]string{Unmarked: "unmarked", Skippable: "skippable", Closing: "closing"}[k.mark], k.level)
}

// unfrozen says what has to be done about kinds that are not as installed builds know them, in sentences; top is Level.
func unfrozen(now []kindNow, top uint32) (todo []string) {
	seen := map[string]bool{}
	for _, k := range now {
		seen[k.name] = true
		was, known := stored[k.name]
		switch {
		case k.mark == Unmarked:
			todo = append(todo, fmt.Sprintf("kind %s has no mark: say in Marks (mark.go) what a build does that does not know it: Closing where a record refuses something to somebody, else Skippable", k.name))
		case k.mark == Closing && k.level != 0:
			todo = append(todo, fmt.Sprintf("kind %s closes and has level %d: closing kinds are stored at every level, take it out of levels (level.go)", k.name, k.level))
		case k.level > top:
			todo = append(todo, fmt.Sprintf("kind %s has level %d and this build says that it reads %d: raise Level (level.go)", k.name, k.level, top))
		case !known:
			todo = append(todo, fmt.Sprintf("kind %s is new. Where a version without it has been released and it is Skippable, give it a level of its own (levels in level.go) and raise Level to that. Then add %q: %q here", k.name, k.name, k))
		case was != k.String():
			todo = append(todo, fmt.Sprintf("kind %s is %q here and %q for builds that are installed: a mark and a level stay what they were", k.name, k, was))
		}
	}
	for name := range stored {
		if !seen[name] {
			todo = append(todo, fmt.Sprintf("kind %s is gone, and stores have records of it: keep the name, or remove its records at a level of its own first", name))
		}
	}
	slices.Sort(todo)
	return todo
}

func kindsNow() (now []kindNow) {
	for _, k := range Kinds() {
		now = append(now, kindNow{k.String(), Marks[k], levels[k]})
	}
	return now
}

// A new kind, or a change of a stored form, needs an entry for the builds that do not know it.
func TestKindsByLevel(t *testing.T) {
	for _, todo := range unfrozen(kindsNow(), Level) {
		t.Error(todo)
	}
	added := func(k kindNow) []kindNow { return append(kindsNow(), k) }
	for _, c := range []struct {
		name string
		now  []kindNow
		want string
	}{
		{"a new one", added(kindNow{"Novel", Skippable, Level}), "kind Novel is new"},
		{"a new one that closes", added(kindNow{"Novel", Closing, 0}), `add "Novel": "closing 0" here`},
		{"without a mark", added(kindNow{"Novel", Unmarked, 0}), "kind Novel has no mark"},
		{"above what this build reads", added(kindNow{"Novel", Skippable, Level + 1}), "raise Level"},
		{"one that closes from a level on", added(kindNow{"Novel", Closing, Level}), "stored at every level"},
		{"another mark", append(kindsNow()[1:], kindNow{"Mesh", Closing, 0}), `kind Mesh is "closing 0" here and "skippable 0"`},
		{"gone", kindsNow()[1:], "kind Mesh is gone"},
	} {
		if got := unfrozen(c.now, Level); len(got) != 1 || !strings.Contains(got[0], c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// The paths of records are what installed builds list and read: they report one that they do not understand, and go on
// without it. A build that wants another shape writes it from a level on, or below another folder.
func TestPathsAreFrozen(t *testing.T) {
	for key, want := range map[Key]string{
		{Kind: KindService, Namespace: "shop", Name: "web", Origin: origin.New("east", "kubernetes")}: "Service/east/kubernetes/shop/web",
		{Kind: KindWorkload, Namespace: "shop", Name: "workloadentry:vm"}:                             "Workload///shop/workloadentry:vm",
		{Kind: KindMesh, Name: "mesh"}: "Mesh////mesh",
	} {
		if got, err := ParsePath(want); key.Path() != want || got != key || err != nil {
			t.Errorf("%v has path %q (%v): installed builds write and read %q", key, key.Path(), err, want)
		}
	}
}
