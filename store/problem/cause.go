package problem

import "regexp"

// local matches the near end of a connection in the errors of package net, as in "read udp 10.0.0.7:43210->10.0.0.10:53: i/o timeout".
var local = regexp.MustCompile(`\[?[0-9A-Fa-f.:]*(%[^\]\s]+)?\]?:\d+->`)

// Cause is the text of an error for the message of a problem. It leaves out the port of the near end of connections: each attempt has another one, and a
// problem whose text changes is a new problem.
func Cause(err error) string { return local.ReplaceAllString(err.Error(), "") }
