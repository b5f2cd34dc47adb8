package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/source/kube"
)

func secret(name string, age int, data map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "istio-system", CreationTimestamp: metav1.NewTime(time.Unix(int64(1000-age), 0))}, Data: map[string][]byte{}}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	return s
}

// kubeconfig is one with a token.
func kubeconfig(token string) string {
	return fmt.Sprintf(`{"current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
		"clusters": [{"name": "x", "cluster": {"server": "https://192.0.2.1"}}], "users": [{"name": "x", "user": {"token": %q}}]}`, token)
}

// The older of two Secrets that name one cluster wins; an entry that names the config cluster, or is not a valid name,
// is reported.
func TestChoose(t *testing.T) {
	many := map[string]string{}
	for i := range Most + 1 {
		many[fmt.Sprintf("c%03d", i)] = "x"
	}
	for name, c := range map[string]struct {
		secrets  []*corev1.Secret
		want     string // clusters and the Secrets that name them
		problems string // Secrets and codes
	}{
		"two":         {[]*corev1.Secret{secret("a", 1, map[string]string{"west": "x", "east": "y"})}, "east=a west=a", ""},
		"older wins":  {[]*corev1.Secret{secret("a", 1, map[string]string{"west": "x"}), secret("b", 2, map[string]string{"west": "y"})}, "west=b", "a Duplicate"},
		"of one time": {[]*corev1.Secret{secret("b", 1, map[string]string{"west": "x"}), secret("a", 1, map[string]string{"west": "y"})}, "west=a", "b Duplicate"},
		"own":         {[]*corev1.Secret{secret("a", 1, map[string]string{"home": "x", "west": "y"})}, "west=a", "a Duplicate"},
		"no name":     {[]*corev1.Secret{secret("a", 1, map[string]string{"..": "x"})}, "", "a Invalid"},
	} {
		all, problems := candidatesOf(c.secrets, "home")
		var got, wrong []string
		for _, c := range all {
			got = append(got, c.cluster+"="+c.secret)
		}
		for _, p := range problems {
			wrong = append(wrong, p.ID.Name+" "+string(p.Code))
		}
		if strings.Join(got, " ") != c.want || strings.Join(wrong, " ") != c.problems {
			t.Errorf("%s: %v, %v", name, got, wrong)
		}
	}
	if all, problems := candidatesOf([]*corev1.Secret{secret("a", 1, many)}, "home"); len(all) != Most || len(problems) != 1 || problems[0].Code != problem.Pending {
		t.Errorf("%d clusters, problems %v", len(all), problems)
	}
}

// played is a source that records its beginning and end.
type played struct {
	of    origin.Origin
	token string
	say   func(string)
}

// test has Clusters with played sources, and the recorded events.
type test struct {
	*Clusters
	mu   sync.Mutex
	done []string
}

func (x *test) say(what string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.done = append(x.done, what)
}

// since returns the events since its last call.
func (x *test) since() string {
	synctest.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	defer func() { x.done = nil }()
	return strings.Join(x.done, ", ")
}

func (p played) Origin() origin.Origin { return p.of }

// Check passes but for credentials that are called bad.
func (p played) Check(context.Context) error {
	if strings.HasSuffix(p.token, "/bad") {
		return errors.New("Pod cannot be listed: Unauthorized")
	}
	return nil
}
func (p played) Refer(all []object.Reference) {
	if len(all) > 0 {
		p.say(fmt.Sprintf("%s reads %v", p.of.Cluster(), all[0].To))
	}
}
func (p played) Run(ctx context.Context, emit func([]object.Event)) error {
	time.Sleep(time.Millisecond) // until its caller has continued
	p.say("begin " + p.token)
	<-ctx.Done()
	time.Sleep(time.Second) // work in progress
	p.say("end " + p.token)
	return ctx.Err()
}
func (p played) Problems() []object.Problem {
	return []object.Problem{{ID: object.ID{Origin: p.of, Kind: "Pod"}, Code: problem.Unreadable}}
}
func (p played) ReadUntil() (time.Time, bool) { return time.Time{}, false }
func (p played) Accounts() bool               { return false }

// Clusters are added, get new credentials and are removed as their Secrets change. A source has ended before its
// objects are forgotten, these are forgotten before Expect, and Expect is called before a successor begins; no step
// waits for an API server. A refused kubeconfig leaves the previous one in use.
func TestClustersComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &test{}
		x.Clusters = newClusters(Config{Namespace: "istio-system", Own: "home", Sealer: &keyed{key: "one"}, Expect: func(all []origin.Origin, known bool) {
			var names []string
			for _, o := range all {
				names = append(names, o.Cluster())
			}
			x.say(fmt.Sprintf("expect %v %v", names, known))
		}})
		x.start = func(c kube.Config) (source, error) {
			return played{of: origin.New(c.Cluster, origin.Kube), token: c.Cluster + "/" + c.API.BearerToken, say: x.say}, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = x.run(ctx, func(events []object.Event) {
				for _, e := range events {
					x.say(fmt.Sprint("forget ", e.ID.Origin.Cluster(), " ", e.Op == object.Forget))
				}
			}, func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		want := func(secrets []*corev1.Secret, want string) {
			t.Helper()
			x.applySecrets(secrets)
			time.Sleep(time.Minute)
			if got := x.since(); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		want(nil, "expect [] true")
		want([]*corev1.Secret{secret("a", 1, map[string]string{"west": kubeconfig("one")})}, "expect [west] true, begin west/one")
		if problems := x.Problems(); len(problems) != 2 || !strings.Contains(fmt.Sprint(problems), "cluster west has not been read since this process leads") {
			t.Errorf("problems %v", problems)
		}
		want([]*corev1.Secret{secret("a", 1, map[string]string{"west": kubeconfig("two")})}, "expect [west] true, end west/one, forget west true, expect [west] true, begin west/two")
		// Credentials that do not work change nothing: the cluster is read with the previous ones, and a problem reports it,
		// until others arrive.
		want([]*corev1.Secret{secret("a", 1, map[string]string{"west": kubeconfig("bad")})}, "expect [west] true")
		if problems := x.Problems(); !slices.ContainsFunc(problems, func(p object.Problem) bool {
			return p.Code == problem.Unreadable && p.ID.Name == "a" && strings.Contains(p.Message, "cluster west are not used yet: Pod cannot be listed")
		}) {
			t.Errorf("problems %v", problems)
		}
		want([]*corev1.Secret{secret("a", 1, map[string]string{"west": kubeconfig("two")})}, "expect [west] true")
		if problems := x.Problems(); strings.Contains(fmt.Sprint(problems), "not used yet") {
			t.Errorf("the check is over, and problems are %v", problems)
		}
		want([]*corev1.Secret{secret("a", 1, map[string]string{"west": strings.Replace(kubeconfig("three"), `"token"`, `"tokenFile"`, 1)})}, "expect [west] true")
		if problems := x.Problems(); !slices.ContainsFunc(problems, func(p object.Problem) bool {
			return p.Code == problem.NotAllowed && p.ID.Name == "a" && strings.Contains(p.Message, "tokenFile")
		}) || strings.Contains(fmt.Sprint(problems), "three") {
			t.Errorf("problems %v", problems)
		}
		want([]*corev1.Secret{secret("a", 1, map[string]string{"east": kubeconfig("one")})},
			"end west/two, forget west true, expect [east] true, begin east/one")
		x.noteFailure("500", false)
		if problems := x.Problems(); !strings.Contains(fmt.Sprint(problems), "cannot be read: 500") {
			t.Errorf("problems %v", problems)
		}
		x.noteFailure("403", true)
		if problems := x.Problems(); !strings.Contains(fmt.Sprint(problems), "lacks the right to list and watch Secrets of its namespace: 403") {
			t.Errorf("problems %v", problems)
		}
		cancel()
		<-ended
		if got := x.since(); got != "end east/one, forget east true, expect [] false" {
			t.Errorf("at the end: %s", got)
		}
	})
}

// A source reads Secrets once the config cluster was emitted and the events of the source itself were processed; in the
// next term again. References are passed to running sources, and to those that start later.
func TestSecretsOfOtherClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &test{}
		x.Clusters = newClusters(Config{Namespace: "istio-system", Own: "home", Expect: func([]origin.Origin, bool) {}, Settle: func(context.Context) error { x.say("taken"); return nil }})
		x.start = func(c kube.Config) (source, error) {
			go func() {
				if c.Settle(t.Context()) == nil {
					x.say(c.Cluster + " settled")
				}
			}()
			return played{of: origin.New(c.Cluster, origin.Kube), token: c.Cluster, say: x.say}, nil
		}
		term := func(during func()) {
			t.Helper()
			x.Incomplete()
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = x.run(ctx, func([]object.Event) {}, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			}()
			during()
			cancel()
			<-ended
			x.since()
		}
		is := func(want ...string) { // in whatever order
			t.Helper()
			time.Sleep(time.Second)
			if got := slices.Sorted(slices.Values(strings.Split(x.since(), ", "))); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		secrets := func(names ...string) {
			data := map[string]string{}
			for _, name := range names {
				data[name] = kubeconfig("x")
			}
			x.applySecrets([]*corev1.Secret{secret("a", 1, data)})
		}
		term(func() {
			secrets("west")
			is("begin west")
			x.Complete()
			is("taken", "west settled")
			x.Refer([]object.Reference{{To: object.ID{Kind: "Secret", Namespace: "edge", Name: "web"}}})
			is("west reads Secret edge/web")
			secrets("west", "east")
			is("begin east", "east reads Secret edge/web", "east settled", "taken")
		})
		term(func() {
			secrets("west")
			is("begin west", "west reads Secret edge/web")
			x.Complete()
			is("taken", "west settled")
		})
	})
}

// half is a source whose Pods are read, and one of whose other kinds cannot be read.
type half struct {
	played
	heard time.Time
	well  bool
}

func (h *half) ReadUntil() (time.Time, bool) { return h.heard, true }
func (h *half) Problems() []object.Problem {
	if h.well {
		return nil
	}
	return []object.Problem{{ID: object.ID{Origin: h.of, Kind: "VirtualService"}, Code: problem.Unreadable}}
}

// A cluster of which one kind cannot be read is one problem for that time, although its Pods are read meanwhile; the
// next failure is another problem.
func TestClusterInPartIsOneProblem(t *testing.T) {
	begun := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	h := &half{heard: begun}
	k := newClusters(Config{})
	k.running["west"] = &cluster{source: h, since: begun.Add(-time.Hour)}
	said := func() (text string) {
		for _, p := range k.Problems() {
			text += p.Message
		}
		return text
	}
	first := said()
	if want := "cluster west is unreachable, or cannot be read in full, since 2026-01-02T03:04:05Z; its stored objects stay in effect"; first != want {
		t.Errorf("%q, want %q", first, want)
	}
	k.Gauges(begun)
	var m dto.Metric
	if err := obs.ManagedClusters.WithLabelValues("remote").Write(&m); err != nil || m.GetGauge().GetValue() != 1 {
		t.Errorf("istiod_managed_clusters is %v, %v", m.GetGauge().GetValue(), err)
	}
	if h.heard = begun.Add(time.Minute); said() != first {
		t.Errorf("it has become %q", said())
	}
	if h.well = true; said() != "" {
		t.Errorf("all can be read, and %q", said())
	}
	if h.well = false; !strings.Contains(said(), "since 2026-01-02T03:05:05Z") {
		t.Errorf("the next time: %q", said())
	}
}
