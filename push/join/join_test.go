package join

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/obs"
)

// parts is everything that a join uses; each part returns an error of its own, and records that it was called.
type parts struct {
	notReady, above, admission, behind, now, planning error

	asked []string
	node  view.Node   // that was planned
	seen  mirror.Seen // that was confirmed
	path  plan.Path   // that moves, when it is planned
	left  bool
}

func (p *parts) ask(what string, err error) error { p.asked = append(p.asked, what); return err }

func (p *parts) Ready() error { return p.ask("ready", p.notReady) }
func (p *parts) ConfirmAt(_ context.Context, seen mirror.Seen) error {
	p.seen = seen
	return p.ask("confirm", p.behind)
}
func (p *parts) ConfirmNow(context.Context) error { return p.ask("confirm now", p.now) }
func (p *parts) Current() *mirror.Snapshot        { return mirror.Empty() }
func (p *parts) Above() error                     { return p.ask("level", p.above) }
func (p *parts) Admit(context.Context, serve.Client, view.Node) error {
	return p.ask("admit", p.admission)
}
func (p *parts) Leave() { p.left = true }

// fleet and plans are two of the parts, whose methods have one name.
type fleet struct{ *parts }

func (f fleet) Join(namespace, workload string) Seat {
	f.asked = append(f.asked, "count "+namespace+"/"+workload)
	return f.parts
}

type plans struct{ *parts }

func (p plans) Join(_ context.Context, node view.Node, moved func(plan.Path)) (*plan.Proxy, error) {
	if p.node = node; p.planning != nil {
		return nil, p.ask("plan", p.planning)
	}
	moved(p.path)
	return &plan.Proxy{Handle: &plan.Handle{Node: &node}}, p.ask("plan", nil)
}

func (p *parts) planner() Planner {
	clients := obs.NewSampled(slog.New(slog.DiscardHandler))
	return Planner{Plans: plans{p}, Mirror: p, Fleet: fleet{p}, Clients: clients, Checked: true, TrustDomain: "cluster.local",
		Scopes: &Scopes{Cluster: "Kubernetes", Domain: "svc.cluster.local", Snapshot: mirror.Empty, Now: time.Now, Clients: clients}}
}

// encoded returns the encoded node of shop's proxy, with more metadata.
func encoded(t *testing.T, more map[string]any) []byte {
	t.Helper()
	metadata := map[string]any{"NAMESPACE": "shop", "SERVICE_ACCOUNT": "web", "WORKLOAD_NAME": "web"}
	for key, value := range more {
		metadata[key] = value
	}
	fields, err := structpb.NewStruct(metadata)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := proto.Marshal(&corev3.Node{Id: "sidecar~10.0.0.1~web-1.shop~shop.svc.cluster.local", Metadata: fields})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// Each step that refuses a proxy does so before the next step, with a status from which its client knows whether to
// retry. A client that is not authorised does not enter the queue of joins, and a proxy without a plan is not counted.
// Promise: security-workloads.md#identity-and-private-keys, security-workloads.md#what-it-says-of-itself
func TestJoinInOrder(t *testing.T) {
	const web = "spiffe://cluster.local/ns/shop/sa/web"
	all := []string{"ready", "level", "admit", "confirm", "plan"}
	for _, c := range []struct {
		what     string
		parts    parts
		identity string
		cluster  string // of its token
		metadata map[string]any
		code     codes.Code
		text     string
		asked    int // how many of all
	}{
		{what: "it may", identity: web, asked: 5},
		{what: "plain text", asked: 5},
		{what: "another's identity", identity: "spiffe://cluster.local/ns/shop/sa/db", code: codes.PermissionDenied, text: "may not ask"},
		{what: "no snapshot", parts: parts{notReady: errors.New("it is being read")}, identity: web, code: codes.Unavailable, text: "it is being read", asked: 2},
		{what: "a newer level", parts: parts{above: errors.New("level 9")}, identity: web, code: codes.Unavailable, text: "level 9", asked: 2},
		{what: "a cluster that is not known", identity: web, metadata: map[string]any{"CLUSTER_ID": "west"}, code: codes.Unavailable, text: `"west"`, asked: 2},
		{what: "a cluster that its token is not of", identity: web, cluster: "east", metadata: map[string]any{"CLUSTER_ID": "west"}, code: codes.PermissionDenied, text: `"west"`, asked: 2},
		{what: "too many join", parts: parts{admission: status.Error(codes.ResourceExhausted, "too many")}, identity: web, code: codes.ResourceExhausted, text: "too many", asked: 3},
		{what: "it lags behind", parts: parts{behind: context.DeadlineExceeded}, identity: web, code: codes.Unavailable, text: "lags behind", asked: 4},
		{what: "it cannot be planned", parts: parts{planning: fmt.Errorf("x: %w", plan.ErrUnplannable)}, identity: web, code: codes.Internal, text: plan.ErrUnplannable.Error(), asked: 5},
		{what: "it panics", parts: parts{planning: fmt.Errorf("secret text: %w", crash.ErrPanic)}, identity: web, code: codes.Internal, text: plan.ErrUnplannable.Error(), asked: 5},
		{what: "the stream ends", parts: parts{planning: context.Canceled}, identity: web, code: codes.Canceled, asked: 5},
	} {
		t.Run(c.what, func(t *testing.T) {
			p := &c.parts
			v, err := p.planner().Join(t.Context(), serve.Client{Node: encoded(t, c.metadata), Identity: c.identity, Caller: attest.Caller{Cluster: c.cluster}}, func(fanout.Lane) {})
			want := slices.Clone(all[:c.asked])
			if c.code == codes.OK {
				want = append(want, "count shop/web")
			}
			if status.Code(err) != c.code || err != nil && (v != nil || !strings.Contains(err.Error(), c.text)) || strings.Contains(fmt.Sprint(err), "secret") {
				t.Errorf("%v", err)
			}
			if !slices.Equal(p.asked, want) {
				t.Errorf("asked %q, want %q", p.asked, want)
			}
		})
	}
}

// A setting of a node that Istio's control plane acts on and Navarch does not is logged by name.
func TestJoinNamesMetadataThatIsNotActedOn(t *testing.T) {
	var log strings.Builder
	p := (&parts{}).planner()
	p.Clients = obs.NewSampled(slog.New(slog.NewTextHandler(&log, nil)))
	if _, err := p.Join(t.Context(), serve.Client{Node: encoded(t, map[string]any{"TLS_CLIENT_KEY": "n", "MESH_ID": "shop", "STATIC_LABELS": map[string]any{"app": "pay"}, "HTTP_PROXY_PORT": 8080.0, "TLS_SERVER_KEY": nil})}, func(fanout.Lane) {}); err != nil {
		t.Fatal(err)
	}
	if lines := log.String(); strings.Count(lines, "node metadata that is not acted on") != 3 || !strings.Contains(lines, "cause=HTTP_PROXY_PORT") || !strings.Contains(lines, "cause=TLS_CLIENT_KEY") || !strings.Contains(lines, "cause=STATIC_LABELS") {
		t.Error(lines)
	}
}

// The server recognises two errors by their type: a replica that is behind the client's state, with its revision, and a
// plan that is not ready. The end of the plan loop makes the client connect again.
func TestJoinErrorsOfTheServer(t *testing.T) {
	p := &parts{behind: fmt.Errorf("at 3: %w", mirror.ErrBehind)}
	seen := agentapi.MinRevision{Store: "1f", Revision: 9}
	_, err := p.planner().Join(t.Context(), serve.Client{Node: encoded(t, nil), MinRevision: seen}, nil)
	if behind := (*serve.BehindError)(nil); !errors.As(err, &behind) || behind.Revision != mirror.Empty().Revision() {
		t.Errorf("behind: %v", err)
	}
	if p.seen != (mirror.Seen{At: kv.Position{Cluster: 0x1f, Revision: 9}}) {
		t.Errorf("confirmed %+v", p.seen)
	}
	p = &parts{planning: fmt.Errorf("x: %w", plan.ErrNotReady)}
	if _, err := p.planner().Join(t.Context(), serve.Client{Node: encoded(t, nil)}, nil); !errors.Is(err, serve.ErrNotReady) {
		t.Errorf("not ready: %v", err)
	}
	for want, planning := range map[codes.Code]error{codes.Unavailable: errors.New("the plan loop has ended"),
		codes.Canceled: context.Canceled, codes.DeadlineExceeded: fmt.Errorf("x: %w", context.DeadlineExceeded)} {
		p := &parts{planning: planning}
		if _, err := p.planner().Join(t.Context(), serve.Client{Node: encoded(t, nil)}, nil); status.Code(err) != want {
			t.Errorf("%v: %v, want %v", planning, err, want)
		}
	}
	if _, err := p.planner().Join(t.Context(), serve.Client{Node: []byte("x")}, nil); err == nil || status.Code(err) != codes.Unknown {
		t.Errorf("a node that is none: %v", err) // the server says what is wrong with it (InvalidArgument)
	}
}

// The planned node has only proven properties: its identity if it is of this mesh, the Pod of its token, and known
// names. A change of endpoints alone moves the lane of endpoints.
func TestJoinPlansWhatIsProved(t *testing.T) {
	for _, c := range []struct {
		identity, want string
		path           plan.Path
		lane           fanout.Lane
	}{
		{"spiffe://cluster.local/ns/shop/sa/web", "service account shop/web", plan.Fast, fanout.Endpoints},
		{"spiffe://elsewhere/ns/shop/sa/web", view.Identity{}.String(), plan.Slow, fanout.Config},
		{"", view.Identity{}.String(), plan.Slow, fanout.Config},
	} {
		p, lane := &parts{path: c.path}, fanout.Lane(255)
		v, err := p.planner().Join(t.Context(), serve.Client{Node: encoded(t, map[string]any{"NETWORK": "invented"}), Identity: c.identity, Caller: attest.Caller{Pod: "web-1"}},
			func(l fanout.Lane) { lane = l })
		if err != nil {
			t.Fatal(err)
		}
		if p.node.Verified.String() != c.want || p.node.Pod != "web-1" || p.node.Network != "" || lane != c.lane {
			t.Errorf("%q: %v of Pod %q in network %q, by lane %v", c.identity, p.node.Verified, p.node.Pod, p.node.Network, lane)
		}
		if v.(*Proxy).Seat != Seat(p) {
			t.Error("its seat is not the fleet's")
		}
		p.now = errors.New("etcd is away")
		if err := v.Confirm(t.Context()); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "etcd is away") {
			t.Errorf("confirmed: %v", err)
		}
	}
}

// A client's position is converted to the store's terms. An invalid name of a store counts as that of another store, of
// which the client has seen nothing.
func TestPosition(t *testing.T) {
	for _, c := range []struct {
		seen agentapi.MinRevision
		want mirror.Seen
	}{
		{agentapi.MinRevision{}, mirror.Seen{At: kv.Position{}}},
		{agentapi.MinRevision{Revision: 7}, mirror.Seen{At: kv.Position{Revision: 7}}},
		{agentapi.MinRevision{Store: StoreName(0xabc), Revision: 7}, mirror.Seen{At: kv.Position{Cluster: 0xabc, Revision: 7}}},
		{agentapi.MinRevision{Store: "0", Revision: 7}, mirror.Seen{At: kv.Position{}}},
		{agentapi.MinRevision{Store: "not hex", Place: "00000000000000ab.17.3"}, mirror.Seen{Place: kv.Place{Chain: 0xab, Term: 17, Seq: 3}}},
		{agentapi.MinRevision{Revision: 7, Place: "ab.17"}, mirror.Seen{At: kv.Position{Revision: 7}}},
		{agentapi.MinRevision{Store: "not hex", Revision: 7}, mirror.Seen{At: kv.Position{}}},
	} {
		if got := seen(c.seen); got != c.want {
			t.Errorf("%+v: %+v", c.seen, got)
		}
	}
	if StoreName(0) != "" {
		t.Error("a store that is not known has a name")
	}
}
