//go:build kube

package cluster

import (
	"errors"
	"testing"
)

// Where iptables is missing, a cluster is refused as something that this machine cannot do: ForTest skips then.
func TestKubeClusterImpossibleWithoutIptables(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := Possible(); !errors.Is(err, ErrImpossible) {
		t.Errorf("without iptables: %v", err)
	}
	if _, err := Start(t.Context(), Options{}); !errors.Is(err, ErrImpossible) {
		t.Errorf("started without iptables: %v", err)
	}
}
