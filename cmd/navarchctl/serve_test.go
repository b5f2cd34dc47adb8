package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/protobuf/encoding/protojson"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/problem"
)

// serve runs navarchd's debug pages over the resources that the builders make of a folder, and sets $SERVER: `serve DIR
// NODE NAME...`. All proxies hold the same resources. The first proxy has refused the cluster "refused" and holds no
// version of it. An EnvoyFilter's version of the first route is withheld from it.
func serve(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: serve DIR NODE NAME...")
	}
	from := offline{configDir: ts.MkAbs(args[0]), proxy: ts.MkAbs(args[1]), cluster: "Kubernetes", domain: "cluster.local"}
	planner, proxy, _, err := from.plan()
	ts.Check(err)
	var streams []inspect.Stream
	for i, name := range args[2:] {
		account, namespace, _ := strings.Cut(name, ".")
		st := inspect.Stream{Proxy: name, Identity: "spiffe://cluster.local/ns/" + namespace + "/sa/" + account, Node: fmt.Sprintf("sidecar~10.0.0.%d~%s~cluster.local", i, name), Cluster: "Kubernetes", Revision: 7, Connected: time.Unix(1, 0),
			Held: func() inspect.Resources { return inspect.Of(proxy.Set()) },
			Explain: func() (*manifest.Set, inspect.Specs, error) {
				return proxy.Set(), func(t xds.Type, name string) []any { return planner.Explain(proxy, t, name) }, nil
			}}
		for t := range xds.NumTypes {
			st.Types[t] = inspect.TypeStatus{Subscribed: t != xds.Secret, Synced: t != xds.Secret, Sent: "1", Acked: "1"}
		}
		streams = append(streams, st)
	}
	streams[0].Types[xds.Cluster].Refused = []inspect.Refused{{Name: "outbound|80||refused.shop.svc.cluster.local", Version: "bad", Text: "no such\x1b[2Jthing",
		Last: time.Unix(60, 0), Objects: []string{"EnvoyFilter shop/f spec.configPatches[3]"}}}
	streams[0].Types[xds.Route].Withheld = []inspect.Withheld{{Name: "80", Version: "worse", Good: "good", RefusedBy: 3,
		First: time.Unix(0, 0), Last: time.Unix(90, 0), Text: "bad route", Objects: []string{"VirtualService shop/web"}}}
	behind := &streams[len(streams)-1].Types[xds.Endpoint]
	behind.Synced, behind.Acked = false, "0"
	mux := http.NewServeMux()
	mux.Handle("/debug/", inspect.Handler(inspect.Config{
		Leader: func(context.Context) (inspect.Leader, error) {
			return inspect.Leader{Name: "navarchd-0", Revision: "default", Epoch: 7, Self: true, Writes: true}, nil
		},
		Streams:  func(string) []inspect.Stream { return append([]inspect.Stream(nil), streams...) },
		Snapshot: func() *mirror.Snapshot { return nil }, Problems: func() []inspect.Problem {
			return []inspect.Problem{
				{Object: "VirtualService shop/web", Field: "spec.http[0]", Code: problem.NotFound, Analyzer: problem.ReferencedResourceNotFound, Severity: problem.Warning, Message: "no such host"},
				{Object: "AuthorizationPolicy pay/deny", Code: problem.Invalid, Severity: problem.Error, Message: "not\x1b valid"},
			}
		},
		Patches: func() (all []inspect.Patch) {
			for _, c := range planner.Patches() {
				all = append(all, inspect.PatchOf(c.Patch, c.Changed))
			}
			return all
		}}))
	mux.HandleFunc("/version", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"version": "v9.9", "golang_version": "go1.99", "platform": "linux/test"}`)
	})
	web := httptest.NewServer(mux)
	ts.Defer(web.Close)
	ts.Setenv("SERVER", strings.TrimPrefix(web.URL, "http://"))
	// The page's content is also a file, for -f.
	res, err := http.Get(web.URL + "/debug/config_dump?proxyID=" + args[2])
	ts.Check(err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("dump.json"), body, 0o600))
	ts.Check(strict(body))
}

// strict parses a dump of the builders' resources with protojson's strict rules, including all packed messages.
func strict(body []byte) error {
	all := &adminv3.ConfigDump{}
	if err := protojson.Unmarshal(body, all); err != nil {
		return err
	}
	if len(all.GetConfigs()) != 1+int(xds.NumTypes) { // the bootstrap before them
		return fmt.Errorf("%d sections", len(all.GetConfigs()))
	}
	for _, section := range all.GetConfigs() {
		if _, err := section.UnmarshalNew(); err != nil {
			return err
		}
	}
	return nil
}
