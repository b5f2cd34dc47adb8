package vault

import (
	"context"

	"navarch.io/navarch/ca/seal"
)

// purposeKubeconfig is part of the associated data, beside the mesh and the name of the cluster.
const purposeKubeconfig = "kubeconfig"

// Kubeconfigs seals (encrypts) and opens (decrypts) the credentials of other clusters. The leader seals them for the
// store. Processes that send requests to these clusters open them. Both fields are required. Safe for concurrent use.
type Kubeconfigs struct {
	Sealer seal.Sealer
	Mesh   string // name of the mesh
}

func (k Kubeconfigs) about(cluster string) seal.Context {
	return seal.Context{Mesh: k.Mesh, KeyID: cluster, Purpose: purposeKubeconfig}
}

// Seal encrypts the credentials of a cluster for this mesh and cluster name. Errors are those of seal.Sealer, such as
// seal.ErrUnavailable.
func (k Kubeconfigs) Seal(ctx context.Context, cluster string, plain []byte) ([]byte, error) {
	return k.Sealer.Seal(ctx, plain, k.about(cluster))
}

// Open decrypts the credentials of a cluster. seal.ErrTampered: the ciphertext was made for another cluster or mesh, or
// was changed. Other errors are those of seal.Sealer.Open.
func (k Kubeconfigs) Open(ctx context.Context, cluster string, sealed []byte) ([]byte, error) {
	plain, err := k.Sealer.Open(ctx, sealed, k.about(cluster))
	return plain, err
}

// Stale queries the provider for its present key encryption key. The returned function reports whether a ciphertext of
// Seal is under another key encryption key, and should be sealed again. seal.ErrUnavailable: the provider does not
// answer.
func (k Kubeconfigs) Stale(ctx context.Context) (func(sealed []byte) bool, error) {
	return k.Sealer.Stale(ctx)
}
