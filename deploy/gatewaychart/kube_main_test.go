//go:build kube

package gatewaychart

import (
	"os"
	"testing"

	"navarch.io/navarch/deploy/testcluster/cluster"
	"navarch.io/navarch/deploy/testcluster/image"
	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/programs"
)

func TestMain(m *testing.M) {
	cluster.Init()
	os.Exit(m.Run())
}

// images returns the product's images and the application.
func images(t *testing.T) image.Table {
	t.Helper()
	etcd, err := programs.Etcd()
	if err != nil {
		t.Fatal(err)
	}
	local := map[string]string{"etcd": etcd, "envoy": envoytest.Binary(t)}
	for _, name := range []string{"navarchd", "navarchctl", "navarch-agent", "app"} {
		local[name] = programs.For(t, name)
	}
	of := image.Product()
	of["app"], of["etcd"] = []string{"app"}, []string{"etcd"}
	table, err := image.Of(of, local)
	if err != nil {
		t.Fatal(err)
	}
	return table
}
