package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/problem"
)

// keyed seals under a key encryption key that is a word.
type keyed struct{ key, before string }

var errSealed = errors.New("sealed under another key, or for another cluster")

func (k *keyed) Seal(_ context.Context, cluster string, plain []byte) ([]byte, error) {
	return append([]byte(k.key+" "+cluster+" "), reversed(plain)...), nil
}

func (k *keyed) Open(_ context.Context, cluster string, sealed []byte) ([]byte, error) {
	for _, key := range []string{k.key, k.before} {
		if rest, is := bytes.CutPrefix(sealed, []byte(key+" "+cluster+" ")); is {
			return reversed(rest), nil
		}
	}
	return nil, errSealed
}

func (k *keyed) Stale(context.Context) (func([]byte) bool, error) {
	return func(sealed []byte) bool { return !bytes.HasPrefix(sealed, []byte(k.key+" ")) }, nil
}

func reversed(b []byte) []byte {
	b = slices.Clone(b)
	slices.Reverse(b)
	return b
}

// following has a Servers, and its notifications.
type following struct {
	*Servers
	notified []map[string]*apiserver.Client
	log      bytes.Buffer
}

func follows(t *testing.T, sealer Sealer) *following {
	t.Helper()
	f := &following{}
	var err error
	f.Servers, err = NewServers(Config{Namespace: "istio-system", Sealer: sealer, Log: slog.New(slog.NewTextHandler(&f.log, nil))}, func(all map[string]*apiserver.Client) {
		f.notified = append(f.notified, all)
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// last returns the last notification, after waiting for the given number of them.
func (f *following) last(t *testing.T, want string, times int) map[string]*apiserver.Client {
	t.Helper()
	if len(f.notified) != times {
		t.Fatalf("notified %d times, want %d: %s", len(f.notified), times, &f.log)
	}
	if times == 0 {
		return nil
	}
	all := f.notified[times-1]
	if got := strings.Join(slices.Sorted(maps.Keys(all)), " "); got != want {
		t.Errorf("clusters %q, want %q", got, want)
	}
	return all
}

// folderOf returns the stored kubeconfigs at a revision, sealed under a key.
func folderOf(t *testing.T, k *keyed, revision int64, kubeconfigs map[string]string) []kv.Blob {
	t.Helper()
	blobs := []kv.Blob{{Path: listed, Revision: 1}}
	for cluster, text := range kubeconfigs {
		plain, err := json.Marshal(credentials{Secret: "a", Kubeconfig: []byte(text)})
		if err != nil {
			t.Fatal(err)
		}
		sealed, err := k.Seal(t.Context(), cluster, plain)
		if err != nil {
			t.Fatal(err)
		}
		blobs = append(blobs, kv.Blob{Path: named + cluster, Raw: sealed, Revision: revision})
	}
	return blobs
}

// The API servers of other clusters are those whose credentials are stored. Nothing is notified before the leader has
// stored all of them. A changed kubeconfig yields a new client; one that is refused, or cannot be opened, leaves the
// client of its cluster; a removed cluster has no client. A change without effect, such as sealing under another key,
// is not notified.
// Promise: security-keys.md#who-reads-or-writes-etcd
func TestServersFollowWhatIsStored(t *testing.T) {
	k := &keyed{key: "one"}
	f := follows(t, k)
	take := func(revision int64, kubeconfigs map[string]string) bool {
		return f.follow(t.Context(), folderOf(t, k, revision, kubeconfigs))
	}
	f.follow(t.Context(), folderOf(t, k, 2, map[string]string{"east": kubeconfig("e")})[1:])
	f.last(t, "", 0)
	take(3, nil)
	f.last(t, "", 1)
	take(4, map[string]string{"east": kubeconfig("e"), "west": kubeconfig("w"), "bad": "token: ["})
	first := f.last(t, "east west", 2)
	if got := f.Named(); got["bad"] != "istio-system/a" || len(got) != 3 {
		t.Errorf("Secrets of clusters: %v", got)
	}
	k.key, k.before = "two", "one"
	take(5, map[string]string{"east": kubeconfig("e"), "west": kubeconfig("w")})
	f.last(t, "east west", 2)
	take(6, map[string]string{"east": kubeconfig("e"), "west": kubeconfig("w2")})
	second := f.last(t, "east west", 3)
	if second["east"] != first["east"] || second["west"] == first["west"] {
		t.Error("the client of east is another one, or that of west is not")
	}
	take(7, map[string]string{"east": kubeconfig("e"), "west": strings.Replace(kubeconfig("w3"), `"token": "w3"`, `"tokenFile": "/our/token"`, 1)})
	f.last(t, "east west", 3)
	swapped := folderOf(t, k, 8, map[string]string{"east": kubeconfig("evil"), "west": kubeconfig("w2")})
	for i := range swapped {
		swapped[i].Raw = bytes.Replace(swapped[i].Raw, []byte("two east "), []byte("two west "), 1)
	}
	if f.follow(t.Context(), swapped) {
		t.Error("what was sealed for another cluster is taken for what is stored")
	}
	if third := f.last(t, "east west", 3); third["east"] != second["east"] {
		t.Error("the client of east is another one, by what was sealed for west")
	}
	take(9, map[string]string{"west": kubeconfig("w2")})
	if fourth := f.last(t, "west", 4); fourth["west"] != second["west"] {
		t.Error("the client of west is another one")
	}
	f.follow(t.Context(), nil) // etcd was emptied: known servers stay
	f.last(t, "west", 4)
	if strings.Contains(f.log.String(), "w3") {
		t.Errorf("the log has a credential: %s", &f.log)
	}
}

// A process without a key encryption key knows no other clusters, and logs the reason.
func TestServersWithoutKey(t *testing.T) {
	f := follows(t, nil)
	for revision := range int64(3) {
		f.follow(t.Context(), folderOf(t, &keyed{key: "one"}, 2+revision, map[string]string{"east": kubeconfig("e")}))
	}
	f.last(t, "", 1)
	if n := strings.Count(f.log.String(), "--kek"); n != 1 {
		t.Errorf("%d lines of the log say so: %s", n, &f.log)
	}
}

// A leader stores the content of the Secrets, sealed, and then the marker of a complete set. It writes again only
// changed values, including those that another leader or another key encryption key left; a process that does not lead
// writes nothing.
// Promise: security-keys.md#who-reads-or-writes-etcd
func TestLeaderStoresSealed(t *testing.T) {
	etcd := kvtest.Start(t)
	store, k := etcd.Connect(), &keyed{key: "one"}
	writes := func(s *folderCopy, kubeconfigs map[string]string) error {
		wanted, _ := candidatesOf([]*corev1.Secret{secret("a", 1, kubeconfigs)}, "home")
		return s.write(t.Context(), wanted)
	}
	leader := &folderCopy{Config: Config{Store: store, Sealer: k}, epoch: etcd.Elect("a")}
	revisions := func() string {
		t.Helper()
		blobs, _, err := store.Blobs(t.Context(), folder, 0)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, b := range blobs {
			if bytes.Contains(b.Raw, []byte("192.0.2.1")) {
				t.Errorf("%s is not sealed: %s", b.Path, b.Raw)
			}
			all = append(all, fmt.Sprint(strings.TrimPrefix(b.Path, folder), "@", b.Revision))
		}
		return strings.Join(all, " ")
	}
	if err := writes(leader, map[string]string{"east": kubeconfig("e"), "west": kubeconfig("w")}); err != nil {
		t.Fatal(err)
	}
	first := revisions()
	if !strings.HasPrefix(first, "listed@") || !strings.Contains(first, "named/east@") || !strings.Contains(first, "named/west@") {
		t.Fatalf("stored: %s", first)
	}
	next := &folderCopy{Config: leader.Config, epoch: leader.epoch} // of another term
	if err := writes(next, map[string]string{"east": kubeconfig("e"), "west": kubeconfig("w")}); err != nil || revisions() != first {
		t.Errorf("%v: the same is stored again: %s, then %s", err, first, revisions())
	}
	if err := writes(next, map[string]string{"east": kubeconfig("e")}); err != nil || strings.Contains(revisions(), "west") {
		t.Errorf("%v: a cluster that no Secret names is stored: %s", err, revisions())
	}
	k.key, k.before = "two", "one"
	second := revisions()
	if err := writes(next, map[string]string{"east": kubeconfig("e")}); err != nil || revisions() == second {
		t.Errorf("%v: what is sealed under the key of before stays: %s", err, revisions())
	}
	deposed := &folderCopy{Config: leader.Config, epoch: kv.Epoch{Key: leader.epoch.Key, Revision: leader.epoch.Revision + 1}}
	third := revisions()
	if err := writes(deposed, nil); !errors.Is(err, kv.ErrDeposed) || revisions() != third {
		t.Errorf("a process that does not lead: %v, %s", err, revisions())
	}
}

// A leader stores the content of the Secrets once they were listed, and after each change, for other processes.
func TestLeadStores(t *testing.T) {
	etcd := kvtest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	clusters := newClusters(Config{Namespace: "istio-system", Own: "home", Store: etcd.Connect(), Sealer: &keyed{key: "one"}})
	came := make(chan string, 10)
	servers, err := NewServers(clusters.Config, func(all map[string]*apiserver.Client) { came <- strings.Join(slices.Sorted(maps.Keys(all)), " ") })
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = servers.Run(ctx) }()
	go clusters.Lead(ctx, etcd.Elect("a"))
	for _, want := range []string{"west", "east west", ""} {
		data := map[string]string{}
		for _, name := range strings.Fields(want) {
			data[name] = kubeconfig("x")
		}
		clusters.applySecrets([]*corev1.Secret{secret("a", 1, data)})
		for <-came != want { // of several writes some may be seen
		}
	}
}

// A leader without a key encryption key reports the clusters whose tokens are not verified because of that; a
// kubeconfig that is too large for etcd is refused.
func TestWhatIsNotStored(t *testing.T) {
	clusters := newClusters(Config{Namespace: "istio-system", Own: "home"})
	clusters.applySecrets([]*corev1.Secret{secret("a", 1, map[string]string{"west": kubeconfig("w"), "huge": strings.Repeat("x", MostBytes+1)})})
	var got []string
	for _, p := range clusters.Problems() {
		got = append(got, fmt.Sprint(p.Code, " ", strings.Contains(p.Message, "west") && strings.Contains(p.Message, "--kek"), " ", strings.Contains(p.Message, "huge")))
	}
	slices.Sort(got)
	if want := []string{string(problem.Invalid) + " false true", string(problem.NotAllowed) + " true false"}; !slices.Equal(got, want) {
		t.Errorf("problems %v, want %v", got, want)
	}
}
