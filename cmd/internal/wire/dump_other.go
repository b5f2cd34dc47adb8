//go:build !linux

package wire

// undumpable does nothing: servers run on Linux.
func undumpable() error { return nil }
