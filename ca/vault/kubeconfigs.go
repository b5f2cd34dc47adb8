package vault

import (
	"context"

	"navarch.io/navarch/ca/seal"
)

// purposeKubeconfig is part of the associated data of each ciphertext. The names of the mesh and the cluster are the
// other parts.
const purposeKubeconfig = "kubeconfig"

// Kubeconfigs seals (encrypts) and opens (decrypts) the credentials of other clusters. Both fields are required. Safe
// for concurrent use.
type Kubeconfigs struct {
	Sealer seal.Sealer
	Mesh   string // name of the mesh
}

func (k Kubeconfigs) about(cluster string) seal.Context {
	return seal.Context{Mesh: k.Mesh, KeyID: cluster, Purpose: purposeKubeconfig}
}

// Seal encrypts plain, the credentials of a cluster. The result opens only for the same mesh and cluster name. Seal
// does not keep plain. Errors are those of seal.Sealer.Seal, such as seal.ErrUnavailable.
func (k Kubeconfigs) Seal(ctx context.Context, cluster string, plain []byte) ([]byte, error) {
	return k.Sealer.Seal(ctx, plain, k.about(cluster))
}

// Open decrypts the credentials of a cluster. The caller owns the result. The error wraps seal.ErrTampered if the
// argument sealed was made for another cluster, mesh or purpose, was changed, or is not a ciphertext. It wraps
// seal.ErrNewer if a newer build made the ciphertext. It wraps seal.ErrUnavailable if the provider of the key
// encryption key does not answer, or does not have this key.
func (k Kubeconfigs) Open(ctx context.Context, cluster string, sealed []byte) ([]byte, error) {
	plain, err := k.Sealer.Open(ctx, sealed, k.about(cluster))
	return plain, err
}

// Stale asks the provider of the key encryption key which key it uses now. The returned function reports whether a
// result of Seal was encrypted under another key of the provider, and should therefore be sealed again. The error wraps
// seal.ErrUnavailable if the provider does not answer, or its key is missing.
func (k Kubeconfigs) Stale(ctx context.Context) (func(sealed []byte) bool, error) {
	return k.Sealer.Stale(ctx)
}
