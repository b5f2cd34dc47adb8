package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/store/apiserver/apiservertest"
)

// leading starts a process that leads and has delivered generation 3 of everything at revision 9; another generation is
// refused by a proxy.
func leading(t *testing.T) (server string) {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		switch r.URL.Path {
		case fleetapi.Root + "stored":
			if q.Get("name") == "none" {
				fmt.Fprint(w, `{"items": [{"leads": true}]}`)
				return
			}
			if q.Get("kind") == "Secret" && q.Get("name") == "open" {
				fmt.Fprint(w, `{"items": [{"leads": true, "read": true, "unsealed": true, "problems": ["the key provider is away"]}]}`)
				return
			}
			fmt.Fprint(w, `{"items": [{"leads": true, "read": true, "generation": 3, "revision": 9}]}`)
		case fleetapi.Root + "deliveries":
			switch q.Get("object") {
			case "VirtualService shop/beside": // planned together with the object that is refused
				fmt.Fprint(w, `{"items": [{"revision": 9, "done": true, "planned": true, "exact": true,
					"change": {"first": 7, "last": 8, "affected": 1, "acknowledged": 0, "refused": 1},
					"refusing": [{"proxy": "web-0.shop", "replica": "a", "why": "it refused cluster x: no",
						"objects": ["EnvoyFilter shop/f spec.configPatches[0]"]}]}]}`)
				return
			case "VirtualService shop/again": // refused since an older change
				fmt.Fprint(w, `{"items": [{"revision": 9, "done": true, "planned": true,
					"refusing": [{"proxy": "web-0.shop", "replica": "a", "why": "it refused routes 80: no",
						"objects": ["VirtualService shop/again spec.http[0]"]}]}]}`)
				return
			case "VirtualService shop/quiet":
				fmt.Fprint(w, `{"items": [{"revision": 9, "done": true, "planned": true}]}`)
				return
			case "VirtualService shop/many":
				fmt.Fprint(w, `{"items": [{"revision": 9, "done": true, "planned": true,
					"change": {"last": 9, "affected": 1, "acknowledged": 1, "more": 3}}]}`)
				return
			}
			if q.Get("object") == "VirtualService shop/bad" {
				fmt.Fprint(w, `{"items": [{"revision": 9, "done": true, "planned": true, "change": {"affected": 2, "acknowledged": 1, "refused": 1},
					"refusing": [{"proxy": "web-0.shop", "replica": "a", "why": "it refused routes 80: no\u001b[2Jsuch",
						"objects": ["VirtualService shop/bad"]}]}]}`)
				return
			}
			fmt.Fprint(w, `{"items": [{"revision": 9, "done": true, "planned": true, "exact": true,
				"change": {"first": 6, "last": 6, "affected": 10000, "acknowledged": 10000, "p100_seconds": 0.0139}}]}`)
		case fleetapi.Root + "problems":
			if q.Get("severity") == "error" && q.Get("object") == "AuthorizationPolicy shop/ext" {
				fmt.Fprint(w, `{"items": [{"object": "AuthorizationPolicy shop/ext", "field": "spec.provider.name", "severity": "error",
						"message": "\"nosuch\" cannot be queried"},
					{"object": "AuthorizationPolicy shop/ext", "severity": "error", "message": "refused", "proxies": 1}]}`)
				return
			}
			fmt.Fprint(w, `{"items": []}`)
		case "/debug/configz":
			fmt.Fprint(w, `[{"kind": "VirtualService", "metadata": {"name": "none", "namespace": "shop"}}]`)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(web.Close)
	return strings.TrimPrefix(web.URL, "http://")
}

// The words of kubectl and istioctl name an object; a wrong one is refused by name.
func TestWait(t *testing.T) {
	server := leading(t)
	for _, args := range [][]string{{"wait", "virtualservice", "web", "-n", "shop"}, {"wait", "VirtualServices", "web.shop"},
		{"wait", "vs/web.shop"}, {"wait", "vs", "shop/web"}, {"wait", "vs/shop/web"}, {"x", "wait", "--for=distribution", "virtualservice", "web.shop"}, {"experimental", "wait", "--for", "delivered", "vs", "web.shop"}} {
		out, _, err := ran(append(args, "--server", server)...)
		if err != nil || out != "Revision 6 is acknowledged by 10,000 of 10,000 affected proxies, in 14ms (VirtualService shop/web).\n" {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	out, next, err := ran("wait", "--revision", "9", "--server", server)
	if err != nil || !strings.Contains(out, "10,000 of 10,000") || strings.Contains(next, "--revision") { // there it is a label
		t.Errorf("%v\n%s%s", err, out, next)
	}
	out, _, err = ran("wait", "vs/bad.shop", "--server", server)
	if err == nil || !strings.Contains(err.Error(), "VirtualService shop/bad is refused by proxies") ||
		!strings.Contains(out, "  web-0.shop at replica a: it refused routes 80: no\\x1b[2Jsuch (made by VirtualService shop/bad)\n") {
		t.Errorf("%v\n%q", err, out)
	}
	for _, one := range []struct {
		args []string
		want string
	}{
		{nil, "want KIND NAME, or --revision"},
		{[]string{"vs"}, "want KIND NAME, or KIND/NAME"},
		{[]string{"vs/a", "b"}, "want KIND NAME, or KIND/NAME"},
		{[]string{"vs/"}, "the object has no name"},
		{[]string{"pudding", "web"}, `kind "pudding": want a kind of the configuration`},
		{[]string{"vs", "web", "--revision", "3"}, "--revision excludes KIND and NAME"},
		{[]string{"vs", "web", "--for", "delete"}, "must be one of delivered, distribution"},
	} {
		_, _, err := ran(append([]string{"wait", "--server", server}, one.args...)...)
		if err == nil || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%v: %v, want %q", one.args, err, one.want)
		}
	}
}

// A wait reports the object that it is for: not the change of another object, but refusals and errors of the object
// however old they are.
func TestWaitForAnObject(t *testing.T) {
	server := leading(t)
	for _, one := range []struct{ object, out, failed string }{
		{"vs/quiet.shop", "Revision 9 is acknowledged by all proxies: no recent change of VirtualService shop/quiet affects one.\n", ""},
		{"vs/many.shop", "Revision 9 changed more objects than are recorded, and VirtualService shop/many may be one of them. " +
			"Revision 9 is acknowledged by 1 of 1 affected proxies (VirtualService shop/many).\n", ""},
		{"vs/again.shop", "Revision 9 has no recent change of VirtualService shop/again, and proxies refuse its configuration.\n" +
			"  web-0.shop at replica a: it refused routes 80: no (made by VirtualService shop/again spec.http[0])\n",
			"VirtualService shop/again is refused by proxies"},
		{"vs/beside.shop", "Revision 8 is acknowledged by 0 of 1 affected proxies (VirtualService shop/beside).\n" +
			"  web-0.shop at replica a: it refused cluster x: no (made by EnvoyFilter shop/f spec.configPatches[0])\n",
			"proxies refuse a change of which VirtualService shop/beside is a part"},
		{"ap/ext.shop", "Revision 6 is acknowledged by 10,000 of 10,000 affected proxies, in 14ms (AuthorizationPolicy shop/ext).\n" +
			"  error of the object: spec.provider.name: \"nosuch\" cannot be queried\n",
			"AuthorizationPolicy shop/ext has errors: spec.provider.name: \"nosuch\" cannot be queried"},
		{"vs/none", "", "the leader has not read VirtualService default/none; VirtualService shop/none has this name: -n shop"},
		{"vrtualservice/web", "", `kind "vrtualservice": want a kind of the configuration, as VirtualService`},
		{"destinationrul/web", "", `kind "destinationrul": want a kind of the configuration, as DestinationRule`},
	} {
		out, _, err := ran("wait", one.object, "--server", server)
		if out != one.out || (err == nil) != (one.failed == "") || err != nil && !strings.HasPrefix(err.Error(), one.failed) {
			t.Errorf("%s: %v\n%s", one.object, err, out)
		}
	}
	_, _, err := ran("wait", "vs/none.other", "--server", server, "--timeout", "100ms")
	const elsewhere = "the leader has not read VirtualService other/none; VirtualService shop/none has this name: -n shop"
	if err == nil || err.Error() != "after 100ms: "+elsewhere {
		t.Error(err)
	}
	_, _, err = ran("wait", "dr/none", "--server", server, "--timeout", "100ms")
	if err == nil || !strings.HasSuffix(err.Error(), "; navarchctl problems lists what is not valid") {
		t.Error(err)
	}
}

// An address that leads nowhere is named, although another one answers for all.
func TestUnreachableServer(t *testing.T) {
	server := leading(t) + ",127.0.0.1:1"
	out, _, err := ran("wait", "vs/web.shop", "--server", server)
	if err != nil || !strings.Contains(out, "process 127.0.0.1:1 (no answer) is not in this answer") {
		t.Errorf("%v\n%s", err, out)
	}
}

// apply sends each object to its path by server-side apply, and waits for its generation.
func TestApply(t *testing.T) {
	server, applied := leading(t), map[string]string{}
	kubeconfig := apiservertest.Kubeconfig(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == "application/apply-patch+yaml" &&
			r.URL.Query().Get("fieldManager") == "navarchctl":
			body, _ := io.ReadAll(r.Body)
			applied[r.URL.Path+"?force="+r.URL.Query().Get("force")] = string(body)
			fmt.Fprint(w, `{"metadata": {"generation": 3}}`)
		case r.URL.Path == "/apis/networking.istio.io/v1":
			fmt.Fprint(w, `{"resources": [{"name": "virtualservices/status", "kind": "VirtualService", "namespaced": true},
				{"name": "virtualservices", "kind": "VirtualService", "namespaced": true}]}`)
		case r.URL.Path == "/api/v1":
			fmt.Fprint(w, `{"resources": [{"name": "namespaces", "kind": "Namespace"}]}`)
		default:
			http.NotFound(w, r)
		}
	})
	t.Setenv("KUBECONFIG", kubeconfig)
	file := filepath.Join(t.TempDir(), "all.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("apiVersion: v1\nkind: List\nitems:\n" +
		"- {apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: web, namespace: shop}}\n" +
		"---\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n")
	out, warnings, err := ran("apply", "-f", file, "--wait", "--server", server, "--force-conflicts")
	if err != nil || !strings.Contains(warnings, "Namespace shop is not waited for") || !strings.Contains(out,
		"VirtualService shop/web applied (generation 3)\nNamespace shop applied (generation 3)\nRevision 6 is acknowledged") {
		t.Errorf("%v\n%s", err, out)
	}
	var sent map[string]any
	const path = "/apis/networking.istio.io/v1/namespaces/shop/virtualservices/web?force=true"
	if json.Unmarshal([]byte(applied[path]), &sent) != nil || sent["kind"] != "VirtualService" {
		t.Errorf("sent %v", applied)
	}
	if _, ok := applied["/api/v1/namespaces/shop?force=true"]; !ok || len(applied) != 2 {
		t.Errorf("sent %v", applied)
	}
	for text, want := range map[string]string{
		"kind: X\nmetadata: {name: a}":                       "all.yaml#1: X default/a: apiVersion is missing",
		"apiVersion: v1\nkind: Pudding\nmetadata: {name: a}": "kind Pudding of /api/v1: the API server of context x does not have it",
		"a: [":                                   "all.yaml#1: is no YAML",
		"# nothing":                              "no object in",
		"apiVersion: v1\nkind: List\nitems: [3]": "items[0]: is no object",
	} {
		write(text)
		if _, _, err := ran("apply", "-f", file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// An interrupted command does not wait for the answers that it has asked for.
func TestWaitIsInterrupted(t *testing.T) {
	for _, path := range []string{"stored", "deliveries"} {
		asked, ended := make(chan struct{}, 100), make(chan struct{})
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if path == "deliveries" && r.URL.Path == fleetapi.Root+"stored" {
				fmt.Fprint(w, `{"items": [{"leads": true, "read": true, "generation": 3, "revision": 9}]}`)
				return
			}
			asked <- struct{}{}
			<-r.Context().Done()
			close(ended)
		}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			cmd := root()
			cmd.SetArgs([]string{"wait", "vs/web.shop", "--timeout", "1h", "--server", strings.TrimPrefix(web.URL, "http://")})
			done <- cmd.ExecuteContext(ctx)
		}()
		<-asked
		cancel()
		<-ended // at once, since the server answers no request
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", path, err)
		}
		web.Close()
	}
}

// A Secret is waited for until its private key is sealed. A wait that succeeds says what it does not prove.
// Promise: delivery.md#wait-for-a-secret
func TestWaitForSecret(t *testing.T) {
	server := leading(t)
	_, _, err := ran("wait", "secret", "open", "-n", "shop", "--timeout", "50ms", "--server", server)
	if err == nil || !strings.Contains(err.Error(), "has read Secret shop/open and has not sealed its private key; "+
		"the previous version stays in effect: the key provider is away") {
		t.Errorf("%v", err)
	}
	_, note, err := ran("wait", "secret/cert.shop", "--server", server)
	if err != nil || !strings.Contains(note, "note: a Secret has no generation") {
		t.Errorf("%v, %q", err, note)
	}
}
