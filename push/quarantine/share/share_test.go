package share

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/push/quarantine"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/origin"
)

// filter is one of the objects from which a refused resource was made.
var filter = model.Place{Key: model.Key{Kind: model.KindEnvoyFilter, Namespace: "shop", Name: "f"}, Field: "spec.configPatches[2]"}

func keyOf(name, version string) quarantine.Key {
	return quarantine.Key{View: "shop", Type: xds.Cluster, Name: name, Version: version}
}

func refusalOf(who, name string, at time.Time) quarantine.Report {
	return quarantine.Report{Key: keyOf(name, "v1"), Reporter: quarantine.ReporterOf(who, ""), At: at}
}

// sharing returns one replica's quarantine, shared through an etcd until the test or the returned function ends it.
func sharing(t *testing.T, store *kv.Store, name string) (*quarantine.Quarantine, func()) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	l := New(name, log)
	q := quarantine.New(quarantine.Config{Log: log, Share: l.Add})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx, store, q) }()
	stop := func() {
		cancel()
		if err, ended := <-done; ended && err != nil {
			t.Error(err)
		}
		close(done)
	}
	t.Cleanup(cancel)
	return q, stop
}

// comes waits until a condition is true.
func comes(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !so() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond) // polling; the duration does not matter
	}
}

// Two identities refuse at one replica and a third at another: all replicas withhold the version and know the reason,
// also a replica that starts later, and also when those that shared it have ended. An identity that refuses on two
// replicas counts once.
func TestQuarantineOfAllReplicas(t *testing.T) {
	etcd := kvtest.Start(t)
	a, stopA := sharing(t, etcd.Connect(), "a")
	b, stopB := sharing(t, etcd.Connect(), "b")
	bad, suspect := keyOf("bad", "v1"), keyOf("suspect", "v1")
	withheld := func(q *quarantine.Quarantine, k quarantine.Key) bool { return q.Withholds(k, "", 1) }
	now := time.Now()
	refuse := func(q *quarantine.Quarantine, who, name string) {
		r := refusalOf(who, name, now)
		r.Namespace, r.Text, r.Objects = "shop", "why "+who, []model.Place{filter}
		q.Report(1, r)
	}
	refuse(a, "one", "suspect")
	refuse(b, "one", "suspect")
	refuse(b, "two", "suspect")
	refuse(a, "one", "bad")
	refuse(a, "two", "bad")
	if withheld(a, bad) {
		t.Error("two identities are no quorum")
	}
	refuse(b, "three", "bad")
	comes(t, "both withhold it", func() bool { return withheld(a, bad) && withheld(b, bad) })
	other := bad
	other.View = "other"
	if withheld(b, other) || withheld(b, keyOf("bad", "v2")) {
		t.Error("another view or version is withheld")
	}
	// Both have read all refusals: the withheld version is last in each list.
	if withheld(a, suspect) || withheld(b, suspect) {
		t.Error("one identity counts twice")
	}
	stopA()
	stopB()
	c, _ := sharing(t, etcd.Connect(), "c")
	comes(t, "a replica that starts later withholds it", func() bool { return withheld(c, bad) })
	if withheld(c, suspect) {
		t.Error("one identity counts twice")
	}
	if all := c.Withheld(); len(all) != 1 || all[0].RefusedBy != 3 || all[0].Namespace != "shop" || !strings.HasPrefix(all[0].Text, "why ") ||
		len(all[0].Objects) != 1 {
		t.Errorf("the replica that starts later knows %+v", all)
	}
}

// A retry that a proxy of one replica acknowledges releases the version on all replicas, also on one that starts later.
func TestReleaseOfAllReplicas(t *testing.T) {
	etcd := kvtest.Start(t)
	a, _ := sharing(t, etcd.Connect(), "a")
	b, _ := sharing(t, etcd.Connect(), "b")
	bad := keyOf("bad", "v1")
	for _, who := range []string{"one", "two", "three"} {
		a.Report(1, refusalOf(who, "bad", time.Time{}))
	}
	comes(t, "the other withholds it", func() bool { return b.Withholds(bad, "", 1) })
	accept := refusalOf("four", "bad", time.Time{})
	accept.Accepted = true
	b.Report(2, accept)
	if b.Withholds(bad, "", 1) {
		t.Error("it is not released where it was acknowledged")
	}
	comes(t, "the other releases it", func() bool { return !a.Withholds(bad, "", 1) })
	c, _ := sharing(t, etcd.Connect(), "c")
	comes(t, "a replica that starts later knows of it", func() bool { return c.Remembers(bad) && !c.Withholds(bad, "", 1) })
}

// Many reports of one Pod replace its own reports, and not those of another Pod of its account.
// Promise: security-limits.md#refused-resources
func TestOnePodLeavesRoomInTheList(t *testing.T) {
	var mine list
	now := time.Now()
	of := func(pod, name string) quarantine.Report {
		r := refusalOf("web", name, now)
		r.Credential = quarantine.CredentialOf("web", pod)
		return r
	}
	mine.add(of("good", "bad"))
	for i := range 1000 {
		mine.add(of("greedy", fmt.Sprint(i)))
	}
	if len(mine.all) != maxOfReporter || mine.all[0].Name != "bad" {
		t.Errorf("%d reports, the oldest of %s", len(mine.all), mine.all[0].Name)
	}
}

// The number of reports is limited, and the identity with the most reports loses its own.
// Promise: security-limits.md#refused-resources
func TestListIsBounded(t *testing.T) {
	var mine list
	now := time.Now()
	if !mine.add(refusalOf("honest", "bad", now)) || mine.add(refusalOf("honest", "bad", now.Add(time.Second))) {
		t.Error("what is new is shared once")
	}
	for i := range 1000 {
		mine.add(refusalOf("one", fmt.Sprint(i), now))
	}
	if len(mine.all) != 1+maxOfReporter || mine.all[1].Name != "984" {
		t.Errorf("one identity has %d of %+v", len(mine.all)-1, mine.all[1])
	}
	for i := range 3000 {
		mine.add(refusalOf(fmt.Sprint("two", i%100), fmt.Sprint(i), now))
	}
	if len(mine.all) != maxReports || mine.all[0].Name != "bad" {
		t.Errorf("%d reports, the oldest %+v", len(mine.all), mine.all[0])
	}
	mine.add(refusalOf("late", "worse", now))
	if len(mine.all) != maxReports || mine.all[0].Name != "bad" || mine.all[maxReports-1].Name != "worse" {
		t.Error("a flood leaves no room for others")
	}
	for i := range 1000 {
		r := refusalOf(fmt.Sprint("each", i), strings.Repeat("n", 2000), now)
		r.Version, r.Text, r.Objects = fmt.Sprint(i), strings.Repeat("t", maxText+1), []model.Place{{Key: filter.Key, Field: strings.Repeat("o", maxText)}, filter}
		mine.add(r)
	}
	raw, err := mine.encode()
	all, errs := decode(raw)
	if err != nil || errs != nil || len(raw) > maxListEncoded || len(all) == 0 || !same(all[len(all)-1], mine.all[len(mine.all)-1]) ||
		len(all[0].Text) != maxText || len(all[0].Objects) != 1 || all[0].Objects[0] != filter {
		t.Errorf("%d bytes, %d reports: %v, %v", len(raw), len(all), err, errs)
	}
	if mine.add(refusalOf("x", strings.Repeat("n", maxName+1), now)) || mine.add(refusalOf("x", "", now)) {
		t.Error("what is too long or names nothing is shared")
	}
	long := refusalOf("x", "long", now)
	if long.Version = strings.Repeat("v", maxShort+1); mine.add(long) {
		t.Error("a version that is too long is shared")
	}
	many := refusalOf("x", "many", now)
	many.Objects = slices.Repeat([]model.Place{filter}, maxObjects+1)
	if r, ok := recordOf(many).report(); !ok || len(r.Objects) != maxObjects || len(cut(many).Objects) != maxObjects {
		t.Errorf("%d objects of one report are read", len(r.Objects))
	}
	if _, err := decode([]byte("[" + strings.Repeat(" ", maxListEncoded) + "]")); err == nil {
		t.Error("a list of any length is read")
	}
	never := func(quarantine.Key) bool { return false }
	if mine.prune(now.Add(quarantine.DefaultKeep-2*time.Second), never) {
		t.Error("forgotten too early")
	}
	if mine.prune(now.Add(quarantine.DefaultKeep), func(quarantine.Key) bool { return true }) {
		t.Error("what the quarantine remembers is forgotten")
	}
	if !mine.prune(now.Add(quarantine.DefaultKeep), never) || len(mine.all) > 0 {
		t.Error("not forgotten")
	}
}

// A repeated report counts from its newest time, and is shared again after a while; that of a retry at once.
func TestReportRepeated(t *testing.T) {
	var mine list
	now := time.Now()
	mine.add(refusalOf("one", "bad", now))
	tenth := now.Add(quarantine.DefaultKeep / 10)
	if !mine.add(refusalOf("one", "bad", tenth)) || len(mine.all) != 1 || !mine.all[0].At.Equal(tenth) {
		t.Errorf("%+v", mine.all)
	}
	retried := refusalOf("one", "bad", tenth)
	retried.Retry = true
	for range 2 {
		if !mine.add(retried) || len(mine.all) != 2 {
			t.Errorf("%+v", mine.all)
		}
	}
}

// A list is decoded as it was encoded, with the message and the objects once for each version. A list of an older build
// is decoded, too.
func TestListIsReadAsWritten(t *testing.T) {
	one := refusalOf("one", "bad", time.UnixMilli(1_700_000_000_123))
	one.Envoy, one.Retry, one.Namespace, one.Text, one.Objects = "1.40.0", true, "shop", "why", []model.Place{filter, {Key: model.Key{Kind: model.KindService, Namespace: "shop", Name: "web", Origin: origin.New("west", "files")}}}
	two := one
	two.Reporter = quarantine.ReporterOf("two", "")
	raw, err := (&list{all: []quarantine.Report{one, two}}).encode()
	if err != nil {
		t.Fatal(err)
	}
	all, err := decode(raw)
	if err != nil || len(all) != 2 || !same(all[0], one) || !same(all[1], two) || !all[1].At.Equal(two.At) || all[1].Text != "why" ||
		!slices.Equal(all[1].Objects, one.Objects) || all[1].Namespace != "shop" || all[0].Text != "" || all[0].Objects != nil {
		t.Errorf("%+v, %v of %s", all, err, raw)
	}
	old := `[{"view":"shop","type":"cluster","name":"bad","version":"v1","who":"` + strings.Repeat("0a", 16) + `","at":1700000000}]`
	if all, err := decode([]byte(old)); err != nil || len(all) != 1 || all[0].Key != keyOf("bad", "v1") || all[0].At.Unix() != 1700000000 {
		t.Errorf("an old list: %+v, %v", all, err)
	}
}

// Each list is read once for each revision, the replica's own never, and an undecodable one is named in the log.
func TestListsAreReadOnce(t *testing.T) {
	one := list{all: []quarantine.Report{refusalOf("one", "bad", time.Now())}}
	raw, err := one.encode()
	if err != nil {
		t.Fatal(err)
	}
	k := known{}
	of := func(blobs ...kv.Blob) kv.Folder { return kv.Folder{Blobs: blobs} }
	mine, a := kv.Blob{Path: folder + "me", Raw: raw, Revision: 1}, kv.Blob{Path: folder + "a", Raw: raw, Revision: 2}
	read := func(want int, blobs ...kv.Blob) {
		t.Helper()
		if reports, problems := k.read(of(blobs...), folder+"me"); len(reports) != want || problems != nil {
			t.Errorf("read %v, %v", reports, problems)
		}
	}
	read(1, mine, a)
	read(0, mine, a)
	a.Revision = 3
	read(1, mine, a)
	read(0)
	if len(k) > 0 {
		t.Errorf("remembers %v", k)
	}
	_, problems := k.read(of(kv.Blob{Path: folder + "b", Raw: []byte("{"), Revision: 1}), folder+"me")
	if len(problems) != 1 || !strings.Contains(problems[0], folder+"b") {
		t.Errorf("problems %q", problems)
	}
}

func FuzzList(f *testing.F) {
	one := list{all: []quarantine.Report{refusalOf("one", "bad", time.Unix(1, 0))}}
	raw, err := one.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`[{"type":"nothing"}]`))
	f.Add([]byte(strings.Repeat("[", maxListEncoded+1)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		all, err := decode(raw)
		if err != nil && all != nil {
			t.Error("an error with reports")
		}
		if len(all) > maxReports {
			t.Errorf("%d reports", len(all))
		}
		for _, r := range all {
			if !valid(r) || r.Type == xds.Unknown || len(r.Text) > maxText || len(r.Objects) > maxObjects {
				t.Errorf("%+v", r)
			}
		}
	})
}
