// Package extension builds the configurations of filters that Envoy requests by name (ECDS). It encodes a Spec (Added,
// Config or Pulled, each with all inputs of one resource) as a TypedExtensionConfig.
//
// Owns: nothing. Reads: its Specs and nothing else. Never: reads the stored configuration, the state of a proxy, or a
// clock.
package extension

import "navarch.io/navarch/store/model"

// Added is the input of a filter's configuration that an EnvoyFilter adds (applyTo EXTENSION_CONFIG).
type Added struct {
	Patch model.Patch // its value is the configuration
}

// Config is the input of the configuration of a WasmPlugin's or TrafficExtension's filter.
type Config struct {
	Extension *model.TrafficExtension // not nil
	ByAgent   bool                    // the proxy's agent fetches the module for Envoy; false: Envoy fetches it
}

// Pulled is the input of a filter's configuration whose module the agent fetches with a credential for the registry.
type Pulled struct {
	Extension *model.TrafficExtension // not nil; its module is an image of a registry
	Secret    *model.Secret           // not nil; the imagePullSecret, with encrypted content
	// Credentials are the decrypted credentials of the Secret; not nil. They print as [sealed].
	Credentials *model.PrivateKey
}
