package view

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"navarch.io/navarch/store/protowalk"
)

// Field numbers of core.v3.Node, core.v3.BuildVersion and type.v3.SemanticVersion.
const (
	nodeAgentVersion, nodeAgentBuild = 7, 8

	buildVersion = 1
)

// longestVersion is the maximum length in bytes of a version that a node states as text.
const longestVersion = 64

// Envoy returns the Envoy version in an encoded core.v3.Node, such as "1.40.0". If the node states no version, the
// result is "". The version is the user_agent_build_version or the user_agent_version of the node. If the node has
// both, the last field in the encoding counts. The text of user_agent_version is not validated, but it is ignored if it
// is longer than 64 bytes. A user_agent_build_version that is malformed or has no version is ignored too, and so are
// fields of another wire type than their own. Fields after a malformed field of the node are ignored.
func Envoy(raw []byte) (version string) {
	for len(raw) > 0 {
		number, _, body, rest, err := field(raw, "node")
		if err != nil {
			return version
		}
		switch {
		case body == nil: // no text and no message
		case number == nodeAgentVersion && len(body) <= longestVersion:
			version = words.of(body)
		case number == nodeAgentBuild:
			if build := semantic(body); build != "" {
				version = words.of([]byte(build))
			}
		}
		raw = rest
	}
	return version
}

// semantic returns the version in an encoded BuildVersion as "major.minor.patch", or "" without a valid version.
func semantic(build []byte) string {
	for len(build) > 0 {
		number, _, body, rest, err := field(build, "node.user_agent_build_version")
		if err != nil {
			return ""
		}
		if build = rest; number != buildVersion || body == nil {
			continue
		}
		var parts [3]uint32 // major_number, minor_number, patch
		for len(body) > 0 {
			f, n := protowalk.Next(body)
			if n < 0 || f.Type != protowire.VarintType {
				return ""
			}
			if body = body[n:]; int(f.Number) <= len(parts) {
				parts[f.Number-1] = uint32(f.Varint)
			}
		}
		return fmt.Sprintf("%d.%d.%d", parts[0], parts[1], parts[2])
	}
	return ""
}

// hasScopes reports whether a version of Envoy supports scopes in the stats access logger. Envoy 1.39 and later
// versions do. The result is false for an empty or malformed version
// (https://www.envoyproxy.io/docs/envoy/v1.39.0/api-v3/extensions/access_loggers/stats/v3/stats.proto).
func hasScopes(version string) bool {
	var major, minor int
	_, err := fmt.Sscanf(version, "%d.%d.", &major, &minor)
	return err == nil && (major > 1 || major == 1 && minor >= 39)
}
