//go:build !linux

package main

import "context"

func cold(context.Context, config, string, string) (string, error) {
	return "\n## Vectors and graph on disk\n\nMeasured on Linux only.\n", nil
}

func coldMain(context.Context) (bool, error) { return false, nil }
