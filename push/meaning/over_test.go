package meaning

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/deploy/docs"
	"navarch.io/navarch/push/xds"
)

// balanced clusters, before and after.
func clusterPair(name string, old, new clusterv3.Cluster_LbPolicy, version string) Pair {
	of := func(p clusterv3.Cluster_LbPolicy) *clusterv3.Cluster {
		return &clusterv3.Cluster{Name: name, LbPolicy: p}
	}
	return Pair{Type: xds.Cluster, Name: name, Old: of(old), New: of(new), Versions: [2]string{"old", version}}
}

// Facts and risks of several views are listed once, with the numbers of views and proxies. Subjects with the same
// difference in the same views are one line.
func TestOver(t *testing.T) {
	ring, random := clusterv3.Cluster_RING_HASH, clusterv3.Cluster_RANDOM
	pairs := func(n int) (all []Pair) {
		for i := range n {
			all = append(all, clusterPair(xds.OutboundCluster(80, "", fmt.Sprintf("s%d.a.svc.cluster.local", i)), ring, random, "new"))
		}
		return all
	}
	empty, _ := new(Decoder).Between(nil, nil)
	view := func(label string, proxies, n int) View {
		return View{Label: label, Proxies: proxies, Pairs: pairs(n), Before: empty.Before, After: empty.After}
	}
	s := Over(t.Context(), slices.Values([]View{view("one", 10, 7), view("two", 5, 7), view("three", 1, 8)}),
		Reach{Proxies: 16, All: 20})
	var lines []string
	for _, f := range s.Facts {
		lines = append(lines, fmt.Sprintf("%d+%d of %d/%d %s: %s", len(f.Named), f.Others, f.Views, f.Proxies, f.Example, f.Text))
	}
	want := []string{"5+2 of 3/16 one: balancing RING_HASH -> RANDOM", "1+0 of 1/1 three: balancing RING_HASH -> RANDOM"}
	if !slices.Equal(lines, want) || s.Views != 3 || s.Proxies != 16 {
		t.Errorf("%d views, %d proxies:\n%s", s.Views, s.Proxies, strings.Join(lines, "\n"))
	}
	lines = nil
	for _, r := range s.Risks {
		lines = append(lines, fmt.Sprintf("%s %d+%d of %d/%d", r.Code, len(r.Named), r.Others, r.Views, r.Proxies))
	}
	if want := []string{"NP502 1+0 of 3/16", "NP113 5+2 of 3/16", "NP113 1+0 of 1/1"}; !slices.Equal(lines, want) || s.Highest() != High {
		t.Errorf("risks %q, want %q", lines, want)
	}
	if got := fmt.Sprint(s.Unchanged()); got != "[routes endpoints inbound policies listeners Secrets extensions]" {
		t.Error(got)
	}
	large := Over(context.Background(), slices.Values([]View{view("large", 1, maxLines+5)}), Reach{})
	if len(large.Risks) != 1 || large.Risks[0].Others != maxLines-maxSubjects || large.MoreFacts != 5 || large.MoreRisks != 5 {
		t.Errorf("%d risks, %d facts and %d risks more", len(large.Risks), large.MoreFacts, large.MoreRisks)
	}
}

// Pairs of equal versions are compared once, and pairs without versions every time.
func TestOverComparesOnce(t *testing.T) {
	s := newMemo(context.Background())
	p := clusterPair("c", clusterv3.Cluster_RANDOM, clusterv3.Cluster_MAGLEV, "1")
	first := s.compare(p)
	p.New = p.Old
	if again := s.compare(p); !slices.Equal(first, again) {
		t.Errorf("compared again: %v", again)
	}
	if p.Versions = [2]string{}; len(s.compare(p)) > 0 {
		t.Error("not compared without versions")
	}
}

// Views that share a changed cluster have the same refused Secrets, even if the cluster names a Secret twice.
func TestRefusedSecretsOfSeveralViews(t *testing.T) {
	p := clusterPair("c", clusterv3.Cluster_RANDOM, clusterv3.Cluster_RANDOM, "new")
	common := &tlsv3.CommonTlsContext{}
	for _, name := range []string{"b", "a", "a"} {
		common.TlsCertificateSdsSecretConfigs = append(common.TlsCertificateSdsSecretConfigs, &tlsv3.SdsSecretConfig{Name: name})
	}
	config, err := anypb.New(&tlsv3.UpstreamTlsContext{CommonTlsContext: common})
	if err != nil {
		t.Fatal(err)
	}
	p.New.(*clusterv3.Cluster).TransportSocket = &corev3.TransportSocket{Name: "tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: config}}
	empty, _ := new(Decoder).Between(nil, nil)
	var asked []string
	refused := func(secret string) string { asked = append(asked, secret); return "" }
	view := View{Pairs: []Pair{p}, Before: empty.Before, After: empty.After, Refused: refused}
	Over(context.Background(), slices.Values([]View{view, view}), Reach{})
	if want := []string{"a", "b", "a", "b"}; !slices.Equal(asked, want) {
		t.Errorf("Secrets %q, want %q", asked, want)
	}
}

// Risks of reach depend on the figures alone; unknown figures are no risk.
func TestReach(t *testing.T) {
	for _, c := range []struct {
		reach Reach
		want  string
	}{
		{Reach{}, ""},
		{Reach{MeshWide: []string{"PeerAuthentication istio-system/default"}}, "NP501 medium"},
		{Reach{Proxies: 10}, ""},
		{Reach{Proxies: 10, All: 100}, ""},
		{Reach{Proxies: 11, All: 100}, "NP502 medium"},
		{Reach{Proxies: 50, All: 100}, "NP502 medium"},
		{Reach{Proxies: 51, All: 100}, "NP502 high"},
		{Reach{Views: [2]int{10, 20}}, ""},
		{Reach{Views: [2]int{10, 21}}, "NP503 medium"},
		{Reach{Bytes: [2]int64{1000, 1200}}, ""},
		{Reach{Bytes: [2]int64{1000, 1201}}, "NP504 medium"},
		{Reach{Bytes: [2]int64{1200, 1000}}, ""},
	} {
		var got []string
		for _, r := range c.reach.Risks() {
			got = append(got, fmt.Sprintf("%s %v", r.Code, r.Level))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v: %q, want %q", c.reach, got, c.want)
		}
	}
}

// The page for operators explains each code, and no others.
func TestPage(t *testing.T) {
	page, err := docs.Pages.ReadFile("risks.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[Code]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| (NP\d+) \|`).FindAllStringSubmatch(string(page), -1) {
		rows[Code(m[1])] = true
	}
	for code := range Titles {
		if !rows[code] {
			t.Errorf("risks.md does not explain %s", code)
		}
		delete(rows, code)
	}
	if len(rows) > 0 {
		t.Errorf("risks.md explains codes that do not exist: %v", rows)
	}
}
