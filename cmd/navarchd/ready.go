package main

import (
	"errors"
	"fmt"
	"time"

	"navarch.io/navarch/ca/keyring"
)

// ready returns an error while proxies cannot use this process because of its certificates. A process that has never
// unsealed (decrypted) the keyring may have no certificate for its secure address. If the process has no other gRPC
// address, it is not ready without this certificate. It is also not ready while rootsReady returns an error.
func (a *authority) ready() error {
	if a.config.speaksGRPC() && a.config.grpcAddr == "" && a.config.secureGRPCAddr != "" {
		if _, err := a.serving.Under(a.ring.State()); err != nil {
			return err
		}
	}
	return a.rootsReady()
}

// sealed returns a note for operators while this replica cannot sign certificates. It returns nil if the replica can
// sign, or if it does not serve gRPC on a secure address.
func (a *authority) sealed() []string {
	if a.config.secureGRPCAddr == "" || !a.config.speaksGRPC() {
		return nil
	}
	state := a.ring.State()
	if state.Active != nil {
		return nil
	}
	if _, err := a.serving.Under(state); err != nil {
		return []string{"the secure address does not answer: " + err.Error()}
	}
	note := fmt.Sprintf("certificates are not signed here: %v", state.Sealed)
	if own, from := a.serving.InForce(); from != "" {
		until := own.Leaf.NotAfter.UTC().Format(time.RFC3339)
		note += fmt.Sprintf("; the serving certificate is from the peer %s, until %s", from, until)
	}
	return []string{note}
}

// rootsReady returns an error while root-cert.pem is missing in the data directory. Agents that start after this
// process is ready read this file. A process that cannot unseal the keyring may have no roots to write, so it is ready
// without the file.
func (a *authority) rootsReady() error {
	if !a.config.has(roleCA) || a.config.dataDir == "" || a.rooted() {
		return nil
	}
	if sealed := a.ring.State().Sealed; sealed != nil && !errors.Is(sealed, keyring.ErrNotLoaded) {
		return nil
	}
	return errors.New("root-cert.pem is not written yet: the keyring is being read")
}
