package inspect

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/xds"
)

// unpacked decodes a dump as strictly as protojson does, with every section in it.
func unpacked(t *testing.T, body string) (all []proto.Message) {
	t.Helper()
	dump := &adminv3.ConfigDump{}
	if err := protojson.Unmarshal([]byte(body), dump); err != nil {
		t.Fatalf("no ConfigDump: %v\n%s", err, body)
	}
	for _, config := range dump.GetConfigs() {
		section, err := config.UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, section)
	}
	return all
}

func sectionNames(all []proto.Message) (names []string) {
	for _, m := range all {
		names = append(names, string(m.ProtoReflect().Descriptor().Name()))
	}
	return names
}

// The dump is Envoy's: an envoy.admin.v3.ConfigDump with the bootstrap's node and a section of each type, also for
// empty ones, or of the requested types. It has no private key. A request over ADS returns the same.
func TestDumpIsEnvoys(t *testing.T) {
	s := stand(t)
	status, body := visit(t, s, "/debug/config_dump?proxyID=web.shop")
	all := unpacked(t, body)
	want := []string{"BootstrapConfigDump", "ClustersConfigDump", "EndpointsConfigDump", "ListenersConfigDump", "RoutesConfigDump", "SecretsConfigDump", "EcdsConfigDump"}
	if status != http.StatusOK || !slices.Equal(sectionNames(all), want) {
		t.Fatalf("%d: sections %q, want %q", status, sectionNames(all), want)
	}
	if node := all[0].(*adminv3.BootstrapConfigDump).GetBootstrap().GetNode(); node.GetId() != "sidecar~1.1.1.1~web.shop~x" { // istioctl proxy-config all reads it first
		t.Errorf("the bootstrap has node %v", node)
	}
	if strings.Contains(body, "hunter2") || !strings.Contains(body, "[redacted]") {
		t.Errorf("a private key is not redacted: %s", body)
	}
	if !strings.Contains(body, `"dynamic_active_clusters"`) || !strings.Contains(body, `"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster"`) {
		t.Errorf("these are not the field names of Envoy's admin: %s", body)
	}
	streams := Config{Streams: func(string) []Stream { return []Stream{standing(t)} }}
	asked, err := Dump(streams, "web.shop")
	if err != nil || len(asked) != len(all) {
		t.Fatalf("over ADS: %v, %d sections", err, len(asked))
	}
	for i, r := range asked {
		if section, err := r.GetResource().UnmarshalNew(); err != nil || !proto.Equal(section, all[i]) {
			t.Errorf("over ADS section %d differs: %v\n%v\n%v", i, err, section, all[i])
		}
	}
	_, body = visit(t, s, "/debug/config_dump?types=cluster,route&proxyID="+url.QueryEscape("sidecar~1.1.1.1~web.shop~x"))
	if got := sectionNames(unpacked(t, body)); !slices.Equal(got, []string{"ClustersConfigDump", "RoutesConfigDump"}) {
		t.Errorf("filtered by type: %q", got)
	}
}

// Refused and withheld versions are in the dump, at the resource if the proxy has a version of it, else by themselves.
func TestDumpOfRefusedAndWithheld(t *testing.T) {
	_, body := visit(t, stand(t), "/debug/config_dump?proxyID=web.shop&types=cluster")
	clusters := unpacked(t, body)[0].(*adminv3.ClustersConfigDump).GetDynamicActiveClusters()
	if len(clusters) != 2 {
		t.Fatalf("%d clusters: %s", len(clusters), body)
	}
	for i, want := range []struct {
		held             bool
		version, details string
		last             int64
		failed           *clusterv3.Cluster
	}{
		{true, "w", "withheld: this version is sent to no proxy of this view, because 3 distinct identities refused it, from 1970-01-01T00:00:04Z to 1970-01-01T00:00:05Z: bad (made by DestinationRule shop/a)",
			5, &clusterv3.Cluster{Name: "a"}},
		{false, "v", "refused: no (made by EnvoyFilter shop/f)", 3, &clusterv3.Cluster{Name: "b", AltStatName: "planned"}},
	} {
		c := clusters[i]
		failed := &clusterv3.Cluster{}
		if err := c.GetErrorState().GetFailedConfiguration().UnmarshalTo(failed); err != nil || !proto.Equal(failed, want.failed) {
			t.Errorf("%d: failed configuration %v, %v", i, failed, err)
		}
		if got := c.GetErrorState(); c.GetClientStatus() != adminv3.ClientResourceStatus_NACKED || (c.Cluster != nil) != want.held ||
			got.GetVersionInfo() != want.version || got.GetDetails() != want.details || got.GetLastUpdateAttempt().GetSeconds() != want.last {
			t.Errorf("got %v, want %+v", c, want)
		}
	}
	for kind := range xds.NumTypes { // a resource that the proxy lacks is in the section of every type, under its name
		st := Stream{Held: func() Resources { return Resources{} }}
		st.Types[kind].Refused = []Refused{{Name: "only", Version: "v"}, {Name: "", Version: "not found out yet"}}
		var page bytes.Buffer
		err := dumped{st, []xds.Type{kind}}.print(&page)
		if raw := page.String(); err != nil || strings.Count(raw, `"NACKED"`) != 1 || !strings.Contains(raw, `name": "only"`) ||
			!strings.Contains(raw, "refused: the proxy's error text is not known") {
			t.Errorf("%v: %v %s", kind, err, raw)
		}
	}
}

// The node in a dump names the policies that close the proxy, and the ports of the Services in front of a gateway. It
// lacks fields without values.
func TestDumpOfClosingPolicies(t *testing.T) {
	st := Stream{Node: "n", Closing: func() []string { return []string{"AuthorizationPolicy a/b"} }}
	got := st.bootstrap().GetBootstrap().GetNode().GetMetadata().GetFields()[ClosingMetadata].GetListValue().GetValues()
	if len(got) != 1 || got[0].GetStringValue() != "AuthorizationPolicy a/b" {
		t.Errorf("%v", got)
	}
	st.Ports = func() []ServicePort { return []ServicePort{{"Service a/b", []string{"10.0.0.1"}, 443, 8443}} }
	raw, err := protojson.Marshal(st.bootstrap().GetBootstrap().GetNode().GetMetadata().GetFields()[PortsMetadata])
	var ports []ServicePort
	if err == nil {
		err = json.Unmarshal(raw, &ports)
	}
	if err != nil || len(ports) != 1 || !reflect.DeepEqual(ports[0], ServicePort{"Service a/b", []string{"10.0.0.1"}, 443, 8443}) {
		t.Errorf("ports %s: %v", raw, err)
	}
	st.Ports = nil
	st.Closing = func() []string { return nil }
	if got := st.bootstrap().GetBootstrap().GetNode().GetMetadata(); got != nil {
		t.Errorf("%v", got)
	}
}

// A Secret that a proxy requests and does not get is in the dump with the reason, unless the proxy has an older
// version.
func TestDumpOfLackingSecrets(t *testing.T) {
	st := Stream{Held: func() Resources { return Resources{} }, Lacks: func() map[string]string {
		return map[string]string{"kubernetes://old": "no right", "kubernetes://gone": "there is no Secret"}
	}}
	entries, err := st.dumpEntries(xds.Secret, []*xds.Resource{resource(t, xds.Secret, "kubernetes://old", &tlsv3.Secret{Name: "kubernetes://old"})})
	if err != nil || len(entries) != 2 || entries[0].failed != nil || entries[1].name != "kubernetes://gone" ||
		entries[1].failed.GetDetails() != "withheld: there is no Secret; Pods that have an earlier version still use it, new Pods fail" {
		t.Errorf("%v: %+v", err, entries)
	}
	if entries, err := st.dumpEntries(xds.Route, nil); err != nil || len(entries) != 0 {
		t.Errorf("routes: %v %v", err, entries)
	}
}

// An accepted resource has no status, as in Envoy's dump; a resource that was refused and is withheld has both details.
func TestDumpStatus(t *testing.T) {
	st := standing(t)
	st.Types[xds.Cluster].Synced = true
	st.Types[xds.Cluster].Refused = append(st.Types[xds.Cluster].Refused, Refused{Name: "a", Version: "w", Text: "no"})
	entries, err := st.dumpEntries(xds.Cluster, append(st.Held()[xds.Cluster], resource(t, xds.Cluster, "c", &clusterv3.Cluster{Name: "c"})))
	if err != nil || len(entries) != 3 {
		t.Fatalf("%v: %v", err, entries)
	}
	if e := entries[1]; e.name != "c" || e.status != adminv3.ClientResourceStatus_UNKNOWN || e.failed != nil {
		t.Errorf("acknowledged: %+v", e)
	}
	if d := entries[0].failed.GetDetails(); !strings.HasPrefix(d, WithheldDetails) || !strings.Contains(d, "; "+RefusedDetails+"no") {
		t.Errorf("refused and withheld: %q", d)
	}
	if _, err := st.dumpEntries(xds.Secret, []*xds.Resource{resource(t, xds.Secret, "s", &tlsv3.Secret{Name: "s"})}); err != nil {
		t.Error(err)
	}
}

// A name of several proxies is an error; of several streams of one proxy, the newest is used.
func TestAmbiguousNames(t *testing.T) {
	streams := []Stream{
		{Proxy: "web.shop", Node: "sidecar~1.1.1.1~web.shop~x", Address: "old", Connected: time.Unix(1, 0)},
		{Proxy: "web.shop", Node: "sidecar~1.1.1.1~web.shop~x", Address: "new", Connected: time.Unix(2, 0)},
	}
	config := Config{Streams: func(string) []Stream { return streams }}
	if st, err := streamNamed(config, "web.shop"); err != nil || st.Address != "new" {
		t.Errorf("two streams of one node: %q %v", st.Address, err)
	}
	streams = append(streams, Stream{Proxy: "web.shop", Node: "sidecar~2.2.2.2~web.shop~x"})
	if _, err := streamNamed(config, "web.shop"); StatusCode(err) != http.StatusBadRequest || !strings.Contains(err.Error(), "sidecar~2.2.2.2~web.shop~x") {
		t.Errorf("two nodes of one name: %v", err)
	}
	if st, err := streamNamed(config, "sidecar~2.2.2.2~web.shop~x"); err != nil || st.Node != streams[2].Node {
		t.Errorf("by the node's id: %v", err)
	}
}
