// Package extension builds the configurations of filters that Envoy requests by name (ECDS): it encodes a Spec as a
// TypedExtensionConfig.
//
// Owns: nothing.  Reads: its Specs and nothing else.  Never: the snapshot, a view, a clock.
package extension

import "navarch.io/navarch/store/model"

// Added is the input of a filter's configuration that an EnvoyFilter adds (applyTo EXTENSION_CONFIG).
type Added struct {
	Patch model.Patch // its value is the configuration
}

// Config is the input of the configuration of a WasmPlugin's or TrafficExtension's filter.
type Config struct {
	Extension *model.TrafficExtension
	ByAgent   bool // the proxy's agent fetches the module, and Envoy reads it from a file; false: Envoy fetches it
}

// Pulled is the input of a filter's configuration whose module the agent fetches with a credential for the registry.
type Pulled struct {
	Extension *model.TrafficExtension
	Secret    *model.Secret
	// Credentials are the decrypted credentials of the Secret; not nil. Secret itself holds no decrypted credentials.
	// Credentials print as [sealed].
	Credentials *model.PrivateKey
}
