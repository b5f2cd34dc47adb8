package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/build/endpoint"
	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// certificates writes a certificate and its key, and returns a replacer of the paths in the cases by the paths of these
// files.
func certificates(t testing.TB) *strings.Replacer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{"c.pem": {Type: "CERTIFICATE", Bytes: cert}, "k.pem": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return strings.NewReplacer(`"/c.pem"`, `"`+dir+`/c.pem"`, `"/k.pem"`, `"`+dir+`/k.pem"`, `"/ca.pem"`, `"`+dir+`/c.pem"`, `"`+systemCAs+`"`, `"`+dir+`/c.pem"`)
}

// judge validates clusters with Envoy itself, each under a unique name, and returns "" or Envoy's first complaint. The
// endpoints of EDS are inside the clusters.
func judge(t testing.TB, envoy string, clusters map[string]*clusterv3.Cluster) string {
	t.Helper()
	folded := []json.RawMessage{json.RawMessage(`{"name": "` + xds.SDSCluster + `"}`)}
	for label, c := range clusters {
		c = proto.CloneOf(c)
		c.Name, c.AltStatName = label, ""
		if c.GetType() == clusterv3.Cluster_EDS {
			c.ClusterDiscoveryType, c.EdsClusterConfig = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}, nil
			if c.GetRingHashLbConfig() == nil { // Envoy takes seconds to fill a ring where weights differ so much
				c.LoadAssignment = endpoints(t)
			}
		}
		raw, err := protojson.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		folded = append(folded, raw)
	}
	b, err := json.Marshal(map[string]any{"node": map[string]any{"id": "x", "cluster": "x"}, "static_resources": map[string]any{"clusters": folded}})
	if err != nil {
		t.Fatal(err)
	}
	return envoytest.Validate(envoy, envoytest.File(t, envoytest.JSON(t, []byte(certificates(t).Replace(string(b))))))
}

// endpoints is an assignment with every property that an endpoint can have.
func endpoints(t testing.TB) *endpointv3.ClusterLoadAssignment {
	t.Helper()
	heavy := &model.Endpoint{Address: "10.0.0.1", Locality: "r/z/s", Weight: 4294967295, Mtls: true, Labels: map[string]string{"app": "a"}}
	s := endpoint.Spec{Cluster: name, Members: members.List(
		model.Member{Endpoint: heavy, Port: 80}, model.Member{Endpoint: heavy, Port: 81},
		model.Member{Endpoint: &model.Endpoint{Address: "fd00::1", Locality: "r", Health: model.Health_HEALTH_DRAINING}, Port: 80},
		model.Member{Endpoint: &model.Endpoint{Address: "unix:///run/app"}},
	)}
	r, err := s.Build()
	if err != nil {
		t.Fatal(err)
	}
	cla := &endpointv3.ClusterLoadAssignment{}
	if err := proto.Unmarshal(r.Body(), cla); err != nil {
		t.Fatal(err)
	}
	return cla
}

func TestEnvoyAccepts(t *testing.T) {
	envoy := envoytest.Binary(t)
	all := map[string]*clusterv3.Cluster{}
	for label, c := range cases(t) {
		_, all[label] = build(t, c.spec)
	}
	if judge(t, envoy, all) == "" {
		return
	}
	for label, c := range all { // Envoy says one thing only: find them all
		if complaint := judge(t, envoy, map[string]*clusterv3.Cluster{label: c}); complaint != "" {
			t.Errorf("%s: %s", label, complaint)
		}
	}
}

// Envoy's validation can fail: a cluster that it refuses is reported.
func TestEnvoyRefuses(t *testing.T) {
	envoy := envoytest.Binary(t)
	_, c := build(t, outbound(t, "PROTOCOL_HTTP", "", `{loadBalancer: {consistentHash: {useSourceIp: true, maglev: {tableSize: 7}}}}`))
	c.GetMaglevLbConfig().TableSize.Value = 8
	if judge(t, envoy, map[string]*clusterv3.Cluster{"a": c}) == "" {
		t.Error("a Maglev table of no prime size is accepted")
	}
}
