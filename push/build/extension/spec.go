// Package extension draws configurations of filters that listeners name and Envoy asks for by themselves (ECDS): a Spec in, an encoded
// TypedExtensionConfig out.
//
// Owns: nothing.  Reads: its Specs and nothing else.  Never: the snapshot, a view, a clock.
package extension

import "navarch.io/navarch/store/model"

// Added is the configuration of a filter that an EnvoyFilter adds (applyTo EXTENSION_CONFIG).
type Added struct {
	Patch model.Patch
}

// Config is the configuration of the filter that a WasmPlugin or TrafficExtension is.
type Config struct {
	Extension *model.TrafficExtension
	ByAgent   bool // the proxy's agent fetches the module, which its Envoy then reads from a file
}

// Pulled is the configuration of a filter whose module the proxy's agent fetches with a credential of its registry.
type Pulled struct {
	Extension *model.TrafficExtension
	Secret    *model.Secret
	// Credentials are the Secret's, opened. They are the only part that is not in the records, and print as [sealed].
	Credentials *model.PrivateKey
}
