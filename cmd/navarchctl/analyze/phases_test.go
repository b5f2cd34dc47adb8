package analyze

import (
	"runtime/pprof"
	"os"
	"testing"
)

func TestPhases(t *testing.T) {
	dir := mesh(t, 10_000)
	f, _ := os.Create("/tmp/rt.prof")
	pprof.StartCPUProfile(f)
	for range 3 { Run(readMesh(t, dir), config) }
	pprof.StopCPUProfile()
	f.Close()
}
