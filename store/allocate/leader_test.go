package allocate

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"navarch.io/navarch/store/apiserver/apiservertest"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// heard records the events for the ingester: the addresses of each ServiceEntry, and whether Synced was emitted.
type heard struct {
	mu     sync.Mutex
	all    map[string]string
	synced bool
	events int
}

func (h *heard) emit(events []object.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = map[string]string{}
	}
	for _, e := range events {
		h.events++
		switch name := e.ID.Namespace + "/" + e.ID.Name; e.Op {
		case object.Put:
			h.all[name] = fmt.Sprint(normal.ParseAutomatic(e.Object))
		case object.Delete:
			delete(h.all, name)
		case object.Synced:
			h.synced = e.ID.Origin == Origin()
		case object.Broken, object.Forget:
		}
	}
}

func (h *heard) say() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprint(h.synced, " ", h.all)
}

// put returns the event of a source for a ServiceEntry with resolution DNS.
func put(source, name, status string, hosts ...string) object.Event {
	id := object.ID{Origin: origin.New("", source), Group: "networking.istio.io", Kind: "ServiceEntry", Namespace: "shop", Name: name}
	list, _ := json.Marshal(hosts)
	raw := fmt.Sprintf(`{"spec": {"hosts": %s, "resolution": "DNS"}, "status": {"addresses": [%s]}}`, list, status)
	return object.Event{Op: object.Put, ID: id, Object: &object.Object{ID: id, Version: "v1", JSON: []byte(raw)}}
}

func synced(o origin.Origin) object.Event {
	return object.Event{Op: object.Synced, ID: object.ID{Origin: o}}
}

func leader(h *heard, sources ...origin.Origin) *Leader {
	return New(Config{Ranges: ranges, Grace: Grace, Sources: sources, Emit: h.emit, Log: slog.New(slog.DiscardHandler)})
}

// until waits for a fact.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("not within a minute: " + what)
		}
	}
}

func run(t *testing.T, l *Leader, store *kv.Store, epoch kv.Epoch) (stop func()) {
	return kvtest.Run(t, func(ctx context.Context) error { l.Run(ctx, store, epoch); return nil })
}

// both returns a status with an address of each family for a host.
func both(host string) string {
	return fmt.Sprintf(`{"value": "240.240.9.9", "host": %q}, {"value": "2001:2::9", "host": %[1]q}`, host)
}

// Nothing is emitted before every source has emitted everything, and emitted addresses are stored. Another leader emits
// the same without a write, also for a ServiceEntry whose status or spec has other addresses than a new assignment
// would. A deletion is emitted at once.
func TestLeaders(t *testing.T) {
	etcd := kvtest.Start(t)
	store := etcd.Connect()
	files, kube := origin.Origin{}, origin.New("", origin.Kube)
	h := &heard{}
	l := leader(h, files, kube)
	stop := run(t, l, store, etcd.Elect("a"))
	observe := func(l *Leader) {
		l.Observe([]object.Event{put(origin.Files, "db", "", "db.example.com"), put(origin.Files, "both", "", "file.example.com"),
			synced(files)})
		l.Observe([]object.Event{put(origin.Kube, "both", both("kube.example.com"), "kube.example.com"), put(origin.Kube, "other",
			"", "*.example.com")})
	}
	observe(l)
	l.Observe([]object.Event{put(origin.Kube, "elsewhere", "", "x.example.com")}) // deleted before everything was emitted
	l.Observe([]object.Event{{Op: object.Delete, ID: put(origin.Kube, "elsewhere", "").ID}})
	for range 2 { // after the second one, all events before it were processed
		l.Observe(nil)
		until(t, "the leader looks", func() bool { return len(l.wake) == 0 })
	}
	if got := h.say(); got != "false map[]" {
		t.Errorf("before the cluster was read: %s", got)
	}
	l.Observe([]object.Event{synced(kube)})
	until(t, "both ServiceEntries have addresses", func() bool { return strings.Count(h.say(), "240.240.") == 2 })
	first := h.say()
	if !strings.HasPrefix(first, "true map[shop/both:map[kube.example.com:[240.240.9.9 2001:2::9]] shop/db:map[db.example.com:[240.240.") {
		t.Errorf("told is %s", first)
	}
	blobs, at, err := store.Blobs(t.Context(), folder, 0)
	if err != nil || len(blobs) != 2 || blobs[0].Path != "allocations/shop/both" ||
		string(blobs[0].Raw) != `{"kube.example.com":["240.240.9.9","2001:2::9"]}` {
		t.Fatalf("stored are %v, %v", blobs, err)
	}
	stop()
	h2 := &heard{}
	l2 := leader(h2, files, kube)
	observe(l2)
	l2.Observe([]object.Event{synced(kube)})
	epoch := etcd.Elect("b")
	stop = run(t, l2, store, epoch)
	until(t, "another leader has told everything", func() bool { return h2.say() == first })
	if again, now, err := store.Blobs(t.Context(), folder, at); err != nil || len(again) > 0 {
		t.Errorf("another leader has written %v at %d, %v", again, now, err)
	}
	// In Kubernetes it goes, and the file's counts; then that goes too.
	l2.Observe([]object.Event{{Op: object.Delete, ID: put(origin.Kube, "both", "").ID}})
	until(t, "the file's hosts have addresses", func() bool { return strings.Contains(h2.say(), "file.example.com") })
	l2.Observe([]object.Event{{Op: object.Delete, ID: put(origin.Files, "both", "").ID}, {Op: object.Broken, ID: put(origin.Files,
		"db", "").ID}})
	until(t, "it is gone", func() bool { return !strings.Contains(h2.say(), "both") })
	if !strings.Contains(h2.say(), "db.example.com") {
		t.Errorf("a file that cannot be read: %s", h2.say())
	}
	if blobs, _, err := store.Blobs(t.Context(), folder, 0); err != nil || len(blobs) != 2 ||
		!strings.Contains(string(blobs[0].Raw), "file.example.com") {
		t.Errorf("within the grace stored are %v, %v", blobs, err)
	}
	stop()
}

// A deposed leader emits nothing new, since it cannot store it. An unreadable value is replaced, and the value of a
// missing ServiceEntry is deleted after the grace.
func TestStored(t *testing.T) {
	etcd := kvtest.Start(t)
	store := etcd.Connect()
	epoch := etcd.Elect("a")
	_, err := store.ChangeFenced(t.Context(), epoch, kv.BlobChange{Put: []kv.Blob{{Path: "allocations/shop/db", Raw: []byte("garbage")},
		{Path: "allocations/shop/gone", Raw: []byte(`{"h":["240.240.1.1"]}`)}, {Path: "allocations/shop/x", Raw: []byte("{}")}}})
	if err != nil {
		t.Fatal(err)
	}
	h := &heard{}
	l := leader(h, origin.Origin{})
	l.Grace = time.Millisecond
	l.Observe([]object.Event{put(origin.Files, "db", "", "db.example.com"), synced(origin.Origin{})})
	stop := run(t, l, store, epoch)
	until(t, "what is stored is what there is", func() bool {
		blobs, _, err := store.Blobs(t.Context(), folder, 0)
		return err == nil && len(blobs) == 1 && strings.HasPrefix(string(blobs[0].Raw), `{"db.example.com":["240.240.`)
	})
	stop()
	h = &heard{}
	l = leader(h, origin.Origin{})
	l.Observe([]object.Event{put(origin.Files, "db", "", "db.example.com"), put(origin.Files, "new", "", "new.example.com"),
		synced(origin.Origin{})})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.Run(t.Context(), store, kv.Epoch{Key: epoch.Key, Revision: epoch.Revision + 1})
	}()
	<-ended // deposed
	if h.events != 0 {
		t.Errorf("a process that does not lead says %s", h.say())
	}
}

// While istiod holds the lock, its addresses are adopted, and no new ones are assigned or written; after it has
// released the lock, both happen.
func TestLocked(t *testing.T) {
	etcd := kvtest.Start(t)
	h, wanted := &heard{}, make(chan map[Name]Hosts, 100)
	kube := origin.New("", origin.Kube)
	l := leader(h, kube)
	l.Lock = NewLock(nil, "istio-system", l.Log)
	l.Want = func(all map[Name]Hosts) { wanted <- all }
	l.Observe([]object.Event{put(origin.Kube, "a", both("a.example.com"), "a.example.com"), put(origin.Kube, "b", "",
		"b.example.com"), synced(kube)})
	run(t, l, etcd.Connect(), etcd.Elect("a"))
	if all := <-wanted; len(all) != 0 {
		t.Errorf("while istiod holds the lock %v is wanted", all)
	}
	if got := h.say(); got != "true map[shop/a:map[a.example.com:[240.240.9.9 2001:2::9]]]" {
		t.Errorf("told is %s", got)
	}
	l.Lock.applyRead(start, [2]record{}, nil)
	all := <-wanted
	for len(all) == 0 { // a read from before
		all = <-wanted
	}
	if len(all) != 2 || fmt.Sprint(all[Name{"shop", "a"}]) != "map[a.example.com:[240.240.9.9 2001:2::9]]" || len(all[Name{"shop",
		"b"}]["b.example.com"]) != 2 {
		t.Errorf("wanted is %v", all)
	}
}

// A lock is held for its duration after its last observed renewal, whatever its timestamps; an unreadable lock counts
// as held.
func TestLock(t *testing.T) {
	one, two := record{"istiod-1", 30, "10:00:00"}, record{"istiod-1", 30, "10:00:10"}
	short := record{Holder: "istiod-1", Renewed: "10:00:00"}
	type look struct {
		after int
		is    [2]record
		err   error
		held  bool
	}
	fails := fmt.Errorf("forbidden")
	for name, looks := range map[string][]look{
		"nobody":         {{0, [2]record{}, nil, false}},
		"it is given up": {{0, [2]record{one}, nil, true}, {1, [2]record{{"", 1, ""}}, nil, false}},
		"its holder dies": {{0, [2]record{one}, nil, true}, {10, [2]record{two}, nil, true}, {39, [2]record{two}, nil,
			true}, {40, [2]record{two}, nil, false}, {41, [2]record{one}, nil, true}},
		"a Lease": {{0, [2]record{{}, one}, nil, true}, {30, [2]record{{}, one}, nil, false}},
		"both forms": {{0, [2]record{one, one}, nil, true}, {20, [2]record{one, two}, nil, true}, {40, [2]record{one,
			two}, nil, true}, {50, [2]record{one, two}, nil, false}},
		"no length":             {{0, [2]record{short}, nil, true}, {29, [2]record{short}, nil, true}, {30, [2]record{short}, nil, false}},
		"it cannot be read":     {{0, [2]record{}, fails, true}, {100, [2]record{}, nil, false}, {101, [2]record{}, fails, true}},
		"an old one, unchanged": {{0, [2]record{two}, nil, true}, {60, [2]record{two}, nil, false}},
	} {
		l := NewLock(nil, "istio-system", slog.New(slog.DiscardHandler))
		for i, look := range looks {
			was, changed := [2]bool{l.Held(), l.Others()}, l.Changed()
			l.applyRead(start.Add(time.Duration(look.after)*time.Second), look.is, look.err)
			is := [2]bool{look.held, look.held && look.err == nil}
			if l.Held() != is[0] || l.Others() != is[1] || (l.Unknown() != "") != (look.err != nil) {
				t.Errorf("%s, look %d: held %v, by others %v, %q", name, i, l.Held(), l.Others(), l.Unknown())
			}
			select {
			case <-changed:
				if was == is {
					t.Errorf("%s, look %d: nothing changed", name, i)
				}
			default:
				if was != is {
					t.Errorf("%s, look %d: nobody was told", name, i)
				}
			}
		}
	}
	var none *Lock
	if none.Held() || none.Others() || none.Unknown() != "" || none.Changed() != nil {
		t.Error("a lock that there is not is held")
	}
}

// Both forms of istiod's lock are read; a missing one counts as not held.
func TestReadLock(t *testing.T) {
	for name, c := range map[string]struct {
		configMap, lease string
		want             string
	}{
		"none": {"", "", "[{ 0 } { 0 }] <nil>"},
		"a ConfigMap": {`{"metadata": {"annotations": {"control-plane.alpha.kubernetes.io/leader": "{\"holderIdentity\":\"istiod-1\",\"holderKey\":\"default\",\"leaseDurationSeconds\":30,\"acquireTime\":\"t\",\"renewTime\":\"r\",\"leaderTransitions\":3}"}}}`, "",
			"[{istiod-1 30 r} { 0 }] <nil>"},
		"a Lease":  {`{"metadata": {}}`, `{"spec": {"holderIdentity": "istiod-2", "leaseDurationSeconds": 15, "renewTime": "r"}}`, "[{ 0 } {istiod-2 15 r}] <nil>"},
		"no right": {"", "forbidden", "[{ 0 } { 0 }] the API server answered 403"},
		"not a record": {`{"metadata": {"annotations": {"control-plane.alpha.kubernetes.io/leader": "x"}}}`, "",
			"[{ 0 } { 0 }] invalid character"},
	} {
		api := apiservertest.Play(t, func(w http.ResponseWriter, r *http.Request) {
			text := map[string]string{"/api/v1/namespaces/istio-system/configmaps/istio-ip-autoallocate": c.configMap,
				"/apis/coordination.k8s.io/v1/namespaces/istio-system/leases/istio-ip-autoallocate": c.lease}[r.URL.Path]
			switch text {
			case "":
				w.WriteHeader(http.StatusNotFound)
			case "forbidden":
				w.WriteHeader(http.StatusForbidden)
			default:
				_, _ = w.Write([]byte(text))
			}
		})
		records, err := NewLock(api, "istio-system", slog.New(slog.DiscardHandler)).read(t.Context())
		if got := fmt.Sprint(records, " ", err); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// Numbers of addresses stay within their range, in both families.
func TestAt(t *testing.T) {
	for text, want := range map[string][2]string{"240.240.0.0/16": {"240.240.0.1", "240.240.255.254"},
		"2001:2::/48":     {"2001:2::1", "2001:2::7fff:ffff:ffff:fffe"},
		"240.240.1.16/28": {"240.240.1.17", "240.240.1.30"}} {
		p := netip.MustParsePrefix(text)
		if got := [2]string{at(p, 1).String(), at(p, sizeOf(p)).String()}; got != want {
			t.Errorf("%s: %v, want %v", p, got, want)
		}
	}
}
