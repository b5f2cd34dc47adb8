// Package extension builds the configurations of filters that Envoy requests by the names in its listeners (ECDS): a
// Spec in, an encoded TypedExtensionConfig out.
//
// Owns: nothing.  Reads: its Specs and nothing else.  Never: the snapshot, a view, a clock.
package extension

import "navarch.io/navarch/store/model"

// Added is the input of a filter's configuration that an EnvoyFilter adds (applyTo EXTENSION_CONFIG).
type Added struct {
	Patch model.Patch
}

// Config is the input of the configuration of a WasmPlugin's or TrafficExtension's filter.
type Config struct {
	Extension *model.TrafficExtension
	ByAgent   bool // the proxy's agent fetches the module and its Envoy reads it from a file; false: Envoy fetches it
}

// Pulled is the input of a filter's configuration whose module the agent fetches with a credential of its registry.
type Pulled struct {
	Extension *model.TrafficExtension
	Secret    *model.Secret
	// Credentials are the decrypted credentials of the Secret. They are the only part that is not in the records, and are
	// printed as [sealed].
	Credentials *model.PrivateKey
}
