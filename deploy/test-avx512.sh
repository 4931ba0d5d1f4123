#!/bin/bash
# Runs the kernel tests at the AVX-512 levels in an emulated machine (Bochs, an Ice Lake
# model, booting a Linux kernel), for CPUs that lack the instructions. Slow: some minutes.
#
#   deploy/test-avx512.sh [-k VMLINUZ] [-w WORKDIR] [COMMAND…]
#
# A COMMAND is one line: NAME=value … program arguments, the program being /simd.test.
# Needs bochs, bochsbios, vgabios, isolinux, syslinux-common, xorriso, cpio and a kernel
# for 64-bit PCs (Debian: linux-image-cloud-amd64); nothing is installed by this script.
set -eu -o pipefail
cd "$(dirname "$0")/.."
work=${TMPDIR:-/tmp}/rag2-avx512 kernel=
while getopts k:w: o; do
	case $o in
	k) kernel=$OPTARG ;;
	w) work=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
missing=
for c in bochs-bin:bochs xorriso:xorriso cpio:cpio go:golang; do
	command -v "${c%%:*}" >/dev/null || missing+=" ${c##*:}"
done
for f in /usr/share/bochs/BIOS-bochs-latest:bochsbios /usr/share/bochs/VGABIOS-lgpl-latest:bochsbios /usr/lib/ISOLINUX/isolinux.bin:isolinux /usr/lib/syslinux/modules/bios/ldlinux.c32:syslinux-common; do
	[ -e "${f%%:*}" ] || missing+=" ${f##*:}"
done
[ -n "$kernel" ] || kernel=$(ls -1 /boot/vmlinuz-*-amd64 "$work"/vmlinuz 2>/dev/null | tail -1 || true)
[ -n "$kernel" ] || missing+=" linux-image-cloud-amd64 (or name a kernel with -k)"
if [ -n "$missing" ]; then
	echo "test-avx512: missing Debian packages:$missing; nothing was tested" >&2
	exit 3
fi
if [ $# = 0 ]; then
	set -- "RAG2_ISA=avx512 /simd.test -test.short -test.v -test.timeout=0" \
		"RAG2_ISA=avx512vnni /simd.test -test.short -test.v -test.timeout=0 -test.run=Int8|Codes|Extreme"
fi
rm -rf "$work/root" "$work/iso"
mkdir -p "$work"/root/{proc,sys,dev,tmp} "$work/iso/isolinux"
CGO_ENABLED=0 GOARCH=amd64 go build -ldflags '-s -w' -o "$work/root/init" ./internal/emuinit
CGO_ENABLED=0 GOARCH=amd64 go test -c -ldflags '-s -w' -o "$work/root/simd.test" ./tensor/simd
printf '%s\n' "$@" >"$work/root/commands"
mknod -m 600 "$work/root/dev/console" c 5 1 2>/dev/null || true
(cd "$work/root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/iso/initrd"
[ "$kernel" -ef "$work/vmlinuz" ] || cp "$kernel" "$work/vmlinuz"
cp "$work/vmlinuz" "$work/iso/vmlinuz"
cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 "$work/iso/isolinux/"
# What is cleared: Bochs 2.7 reports sizes of PKRU, XSAVES and XSAVEC areas that Linux
# does not accept, and FSRM without the fast strings that Linux then relies on.
cat >"$work/iso/isolinux/isolinux.cfg" <<-CFG
	DEFAULT l
	LABEL l
	KERNEL /vmlinuz
	INITRD /initrd
	APPEND console=ttyS0 nokaslr mitigations=off clearcpuid=pku,ospke,xsaves,xsavec,fsrm tsc=reliable no_timer_check nohpet random.trust_cpu=on rdinit=/init loglevel=3
CFG
xorriso -as mkisofs -quiet -o "$work/boot.iso" -b isolinux/isolinux.bin -c isolinux/boot.cat -no-emul-boot -boot-load-size 4 -boot-info-table "$work/iso" >/dev/null 2>&1
cat >"$work/bochsrc" <<-CFG
	display_library: rfb, options="timeout=0"
	romimage: file=/usr/share/bochs/BIOS-bochs-latest
	vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
	cpu: model=corei7_icelake_u, count=1, ips=50000000, ignore_bad_msrs=1
	memory: guest=512, host=512
	ata0-master: type=cdrom, path=$work/boot.iso, status=inserted
	boot: cdrom
	com1: enabled=1, mode=file, dev=$work/serial.txt
	log: $work/bochs.log
	panic: action=fatal
	error: action=ignore
	info: action=ignore
	sound: waveoutdrv=dummy, waveindrv=dummy, midioutdrv=dummy
	speaker: enabled=0
	plugin_ctrl: unmapped=1, biosdev=1, speaker=0, extfpuirq=0, parallel=0, gameport=0
	clock: sync=none, time0=utc
CFG
echo c >"$work/rc"
: >"$work/serial.txt"
tail -f "$work/serial.txt" &
follow=$!
trap 'kill $follow 2>/dev/null || true' EXIT
bochs-bin -q -f "$work/bochsrc" -rc "$work/rc" </dev/null >"$work/bochs.out" 2>&1 || true
sleep 1
if ! grep -q '^exit status' "$work/serial.txt"; then
	echo "test-avx512: the emulated machine stopped early; see $work/serial.txt and $work/bochs.log" >&2
	exit 1
fi
grep -aq '^exit status 0' "$work/serial.txt"
