package telemetry

import "testing"

// An access log computes a literal text or one attribute; other expressions, which Envoy would refuse, are left out.
func TestFormat(t *testing.T) {
	for in, want := range map[string]string{
		"request.host": "%CEL(request.host)%", " string(destination.port) ": "%CEL(destination.port)%", "request.headers['x-team']": "%CEL(request.headers['x-team'])%",
		`xds.node.metadata["NAME"]`: `%CEL(xds.node.metadata["NAME"])%`, "'blue'": "blue", `"100 %"`: "100 %%", "''": "",
		"request": "-", "request.size + 1": "-", "string(request.host": "-", "has(request.host)": "-", "request.headers[')%']": "-", "upstream_peer.name": "-", "'a' + 'b'": "-",
		"request.host)%%CEL(request.path": "-", "node.metadata['x']": "-", "": "-", `'a\\'`: "-", "request.headers['%REQ(x)%']": "-", "request.in": "-", "request.headers['a.in']": "%CEL(request.headers['a.in'])%",
	} {
		got, ok := Format(in)
		if !ok {
			got = "-"
		}
		if got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
