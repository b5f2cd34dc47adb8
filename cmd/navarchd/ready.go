package main

import (
	"errors"
	"fmt"
	"time"

	"navarch.io/navarch/ca/keyring"
)

// ready is nil when a replica can answer proxies. A process that only ingests is ready once it runs. One that was sealed
// from its start has no certificate for its secure address: where there is no other, nobody should be sent to it.
func (p *process) ready() error {
	if p.ca != nil && p.config.speaksGRPC() && p.config.grpcAddr == "" && p.config.secureGRPCAddr != "" {
		if _, err := p.ca.serving.Under(p.ca.ring.State()); err != nil {
			return err
		}
	}
	if err := p.rootsReady(); err != nil {
		return err
	}
	if p.mirror == nil {
		return nil
	}
	if err := p.mirror.Ready(); err != nil {
		return err
	}
	return p.fleet.Ready()
}

// notes are what an operator should know of a process that is ready all the same.
func (p *process) notes() (notes []string) {
	if p.mirror != nil {
		if alarm := p.mirror.Status().Alarm; alarm != nil {
			notes = append(notes, alarm.Error())
		}
	}
	if text := p.space.warning(); text != "" {
		notes = append(notes, text)
	}
	return append(notes, p.sealed()...)
}

// sealed is what notes say of a replica that cannot sign.
func (p *process) sealed() []string {
	if p.ca == nil || p.config.secureGRPCAddr == "" || !p.config.speaksGRPC() {
		return nil
	}
	state := p.ca.ring.State()
	if state.Active != nil {
		return nil
	}
	if _, err := p.ca.serving.Under(state); err != nil {
		return []string{"the secure address does not answer: " + err.Error()}
	}
	note := fmt.Sprintf("certificates are not signed here: %v", state.Sealed)
	if own, from := p.ca.serving.Have(); from != "" {
		until := own.Leaf.NotAfter.UTC().Format(time.RFC3339)
		note += fmt.Sprintf("; the serving certificate is from the peer %s, until %s", from, until)
	}
	return []string{note}
}

// rootsReady is nil unless root-cert.pem is still to come in the data directory: who starts agents once this process is ready
// finds the file there. One that is sealed may have no roots to write, and does not wait for them.
func (p *process) rootsReady() error {
	if !p.config.has(roleCA) || p.config.dataDir == "" || p.trust.RootsWritten() {
		return nil
	}
	if sealed := p.ca.ring.State().Sealed; sealed != nil && !errors.Is(sealed, keyring.ErrNotLoaded) {
		return nil
	}
	return errors.New("root-cert.pem is not written yet: the keyring is being read")
}
