package plan

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httpwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// plugin returns a WasmPlugin whose module is an image of r.example, downloaded with the Secret pull of its namespace.
func plugin(t testing.TB, name, selector string) model.Record {
	t.Helper()
	return rec(t, model.KindWasmPlugin, name, "{selector: {matchLabels: {"+selector+"}}, wasm: {url: 'oci://r.example/m', imagePullSecret: pull}}")
}

func pullSecret(t testing.TB, name, registries, mac string) model.Record {
	t.Helper()
	return rec(t, model.KindSecret, name, fmt.Sprintf("{registries: [%s], key: '%s', mac: '%s'}", registries, "eA==", mac))
}

// fetcher returns a sidecar whose agent downloads modules. It is authenticated as the service account web of the
// namespace verified, or not at all if this is empty.
func fetcher(namespace, verified string, labels ...string) view.Node {
	n := node(namespace, "web-1", labels...)
	n.Caps |= xds.CapWasmHTTP | xds.CapWasmFetch
	if verified != "" {
		n.Verified = view.Identity{Namespace: verified, Account: "web"}
	}
	return n
}

// credentialIn describes the credential that an agent receives for a module: "pending"; "absent" if there is no
// configuration; "none" if the module needs none; otherwise its text.
func credentialIn(t testing.TB, set *manifest.Set, key model.Key) string {
	t.Helper()
	name := extension.Name(key)
	if set.Types[xds.Extension].Pending(name) {
		return "pending"
	}
	r := set.Types[xds.Extension].Get(name)
	if r == nil {
		return "absent"
	}
	m, wasm := &corev3.TypedExtensionConfig{}, &httpwasmv3.Wasm{}
	if err := errors.Join(proto.Unmarshal(r.Body(), m), m.GetTypedConfig().UnmarshalTo(wasm)); err != nil {
		t.Fatal(err)
	}
	credential, is := wasm.GetConfig().GetVmConfig().GetEnvironmentVariables().GetKeyValues()[extension.PullSecretVariable]
	if !is {
		return "none"
	}
	if r.Confidential != (credential != "") {
		t.Errorf("%q is confidential: %v", credential, r.Confidential)
	}
	return credential
}

// credentials is the sealed content of the tests' Secrets.
const credentials = `{"auths": {"r.example": {"auth": "hunter2"}, "other.example": {"auth": "hunter3"}}}`

// The credential of a module is sent to the agents of the workloads whose recorded labels the extension selects,
// whatever labels their nodes have. Subscribing to the Secret itself does not return it. An agent without a right to it
// receives an empty credential, and the extension has a problem.
// Promise: security-workloads.md#identity-and-private-keys
func TestWhoFetchesWithCredentials(t *testing.T) {
	const given = `{"auths":{"r.example":{"auth":"hunter2"}}}`
	pod := workloadOf(t, "shop/web-1", "web", "app: web")
	forged := fetcher("shop", "shop", "app=admin")
	bound := fetcher("shop", "shop", "app=web")
	bound.Pod = "web-1"
	otherPod := bound
	otherPod.Pod = "web-2"
	for name, c := range map[string]struct {
		plugin, secret model.Record
		node           view.Node
		want, problem  string
	}{
		"selected":                 {plugin(t, "shop/p", "app: web"), pullSecret(t, "shop/pull", "other.example, r.example", "MQ=="), fetcher("shop", "shop", "app=web"), given, ""},
		"all":                      {plugin(t, "shop/p", ""), pullSecret(t, "shop/pull", "r.example", "MQ=="), fetcher("shop", "shop"), given, ""},
		"all of the mesh":          {plugin(t, "istio-system/p", ""), pullSecret(t, "istio-system/pull", "r.example", "MQ=="), fetcher("shop", "shop"), given, ""},
		"its Pod":                  {plugin(t, "shop/p", "app: web"), pullSecret(t, "shop/pull", "r.example", "MQ=="), bound, given, ""},
		"another Pod's labels":     {plugin(t, "shop/p", "app: web"), pullSecret(t, "shop/pull", "r.example", "MQ=="), otherPod, "absent", ""},
		"labels that it claims":    {plugin(t, "shop/p", "app: admin"), pullSecret(t, "shop/pull", "r.example", "MQ=="), forged, "", "WasmPlugin shop/p does not select service account shop/web"},
		"nobody":                   {plugin(t, "shop/p", ""), pullSecret(t, "shop/pull", "r.example", "MQ=="), fetcher("shop", ""), "", ""},
		"a namespace that it says": {plugin(t, "shop/p", ""), pullSecret(t, "shop/pull", "r.example", "MQ=="), fetcher("shop", "bank"), "", ""},
		"of another namespace":     {plugin(t, "istio-system/p", ""), pullSecret(t, "shop/pull", "r.example", "MQ=="), fetcher("shop", "shop"), "", "there is no Secret istio-system/pull of type kubernetes.io/dockerconfigjson with a credential for r.example"},
		"no such Secret":           {plugin(t, "shop/p", ""), pullSecret(t, "shop/else", "r.example", "MQ=="), fetcher("shop", "shop"), "", "there is no Secret shop/pull"},
		"of other registries":      {plugin(t, "shop/p", ""), pullSecret(t, "shop/pull", "other.example", "MQ=="), fetcher("shop", "shop"), "", "with a credential for r.example"},
		"a private key":            {plugin(t, "shop/p", ""), tlsSecret(t, "shop/pull", "chain", "", "1"), fetcher("shop", "shop"), "", "there is no Secret shop/pull of type"},
		"none is named":            {rec(t, model.KindWasmPlugin, "shop/p", "{wasm: {url: 'oci://r.example/m'}}"), pullSecret(t, "shop/pull", "r.example", "MQ=="), fetcher("shop", "shop"), "none", ""},
		"no image":                 {rec(t, model.KindWasmPlugin, "shop/p", "{wasm: {url: 'https://r.example/m', imagePullSecret: pull}}"), pullSecret(t, "shop/pull", "r.example", "MQ=="), fetcher("shop", "shop"), "none", ""},
		"another cluster's":        {plugin(t, "shop/p", ""), of(t, west, pullSecret(t, "shop/pull", "r.example", "MQ==")), fetcher("shop", "shop"), "", "there is no Secret shop/pull"},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(Settings{Snapshot: snapshot(c.plugin, c.secret, pod, workloadOf(t, "shop/web-2", "web", "app: other"))})
			h := p.Join(c.node)
			p.SubscribeSecrets(h, []string{"kubernetes://pull"}, nil)
			open(p, credentials)
			key := c.plugin.Meta().Key
			if got := credentialIn(t, h.Set(), key); got != c.want {
				t.Errorf("given %q, want %q", got, c.want)
			}
			if sent := held(t, h.Set(), "kubernetes://pull"); sent != "" {
				t.Errorf("sent as a Secret: %s", sent)
			}
			found := fmt.Sprint(p.problemSources(nil).found)
			if strings.Contains(found, "imagePullSecret") != (c.problem != "") || !strings.Contains(found, c.problem) {
				t.Errorf("problems %s, want %q", found, c.problem)
			}
			if specs := fmt.Sprintf("%+v", p.Explain(h, xds.Extension, extension.Name(key))); strings.Contains(specs, "hunter") || (c.want == given) != strings.Contains(specs, "[sealed]") {
				t.Errorf("explained as %s", specs)
			}
			if bad := p.Check(h); len(bad) > 0 {
				t.Error(bad)
			}
			if p.Leave(h); !p.secrets.Empty() {
				t.Error("something is kept of a proxy that has left")
			}
		})
	}
}

// Until a credential is opened the extension has no configuration, because the agent could not download the module. A
// new credential is sent when it is opened; the previous one stays until then. A deleted one is removed. The version of
// the configuration does not depend on the credential's content.
// Promise: security-workloads.md#identity-and-private-keys
func TestCredentialsAreOpened(t *testing.T) {
	var log bytes.Buffer
	o := &opener{err: errors.New("the provider is away")}
	inBubble(t, Config{Opener: o, Authoriser: &judge{}, Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(t *testing.T, l *Loop, src *testSource) {
		key := plugin(t, "shop/p", "").Meta().Key
		src.put(plugin(t, "shop/p", ""), pullSecret(t, "shop/pull", "r.example", "MQ=="))
		moved := 0
		p, err := l.Join(t.Context(), fetcher("shop", "shop"), func(Path) { moved++ })
		if err != nil {
			t.Fatal(err)
		}
		expect := func(want string, moves int) {
			t.Helper()
			if synctest.Wait(); credentialIn(t, p.Set(), key) != want || moved != moves {
				t.Fatalf("%q after %d moves, want %q after %d", credentialIn(t, p.Set(), key), moved, want, moves)
			}
		}
		expect("pending", 0)
		plan := p.Set().Plan
		o.give(credentials)
		pass(openPause)
		expect(`{"auths":{"r.example":{"auth":"hunter2"}}}`, 1)
		o.set(errors.New("away again"))
		src.put(pullSecret(t, "shop/pull", "r.example", "Mg=="))
		pass(openRetry)
		expect(`{"auths":{"r.example":{"auth":"hunter2"}}}`, 1)
		o.give(strings.Replace(credentials, "hunter2", "hunter4", 1))
		pass(openPause)
		expect(`{"auths":{"r.example":{"auth":"hunter4"}}}`, 2)
		if p.Set().Plan != plan {
			t.Errorf("a credential is rolled out as configuration: plan %d, was %d", p.Set().Plan, plan)
		}
		src.apply(nil, pullSecret(t, "shop/pull", "r.example", "").Meta().Key)
		pass(openPause)
		expect("", 3)
		if strings.Contains(log.String(), "hunter") || !strings.Contains(log.String(), "the provider is away") {
			t.Errorf("log: %s", log.String())
		}
	})
}

// A view that panics while it is planned keeps no modules and no credentials.
func TestPanickingViewHasNoModules(t *testing.T) {
	broken := true
	p := New(Settings{Snapshot: snapshot(plugin(t, "shop/p", ""), pullSecret(t, "shop/pull", "r.example", "MQ==")), fault: func(*input.Input, view.Scope) {
		if broken {
			panic("broken on purpose")
		}
	}})
	func() {
		defer func() { _ = recover() }()
		p.Join(fetcher("shop", "shop"))
	}()
	if !p.secrets.Empty() || len(p.identities) > 0 {
		t.Error("something is kept")
	}
	broken = false
	h := p.Join(fetcher("shop", "shop"))
	open(p, credentials)
	if got := credentialIn(t, h.Set(), plugin(t, "shop/p", "").Meta().Key); got == "" {
		t.Error("nothing is given afterwards")
	}
}

// A credential is kept only as long as a proxy has the extension; other proxies of its service account do not keep it.
func TestCredentialsAreForgotten(t *testing.T) {
	p := New(Settings{Snapshot: snapshot(plugin(t, "shop/p", "app: web"), pullSecret(t, "shop/pull", "r.example", "MQ=="), workloadOf(t, "shop/web-1", "web", "app: web"))})
	selected, same, other := p.Join(fetcher("shop", "shop", "app=web")), p.Join(fetcher("shop", "shop", "app=web", "more=x")), p.Join(fetcher("shop", "shop"))
	open(p, credentials)
	for _, step := range []struct {
		leaves *Handle
		keys   int
	}{{selected, 1}, {same, 0}, {other, 0}} {
		if p.Leave(step.leaves); p.secrets.Keys() != step.keys {
			t.Errorf("%d credentials are held, want %d", p.secrets.Keys(), step.keys)
		}
	}
	if !p.secrets.Empty() {
		t.Error("something is kept")
	}
}
