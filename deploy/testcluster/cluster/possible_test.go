//go:build kube

package cluster

import (
	"errors"
	"testing"
)

// Without iptables the error is ErrImpossible, with which ForTest skips a test.
func TestKubeClusterImpossibleWithoutIptables(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := Possible(); !errors.Is(err, ErrImpossible) {
		t.Errorf("without iptables: %v", err)
	}
	if _, err := Start(t.Context(), Options{}); !errors.Is(err, ErrImpossible) {
		t.Errorf("started without iptables: %v", err)
	}
}
