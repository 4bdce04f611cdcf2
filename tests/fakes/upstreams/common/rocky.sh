#!/bin/sh
# rocky.sh KEY BASEOS: makes a stand-in of Rocky Linux or UBI, as DISTRO says, out of a Debian that has dnf: no apt and no dpkg, dnf's
# repositories as they come with the distribution, and of its packages those that its images have.
set -eu

release=$(printf '%s' "$DISTRO" | tr -d '[:lower:]')
rm -rf /usr/bin/apt* /usr/bin/dpkg* /usr/sbin/update-ca-certificates /etc/apt /var/lib/apt /var/lib/dpkg /etc/ssl/certs
mkdir -p /etc/pki/rpm-gpg /etc/pki/tls/certs /etc/yum.repos.d /etc/dnf/vars /etc/rpm
cp "$1" /etc/pki/rpm-gpg/RPM-GPG-KEY
printf '%%_dbpath /var/lib/rpm\n' > /etc/rpm/macros
printf '[main]\ngpgcheck=1\nbest=True\nskip_if_unavailable=False\n' > /etc/dnf/dnf.conf
echo "$release" > /etc/dnf/vars/releasever
echo pub/rocky > /etc/dnf/vars/contentdir

for repository in BaseOS AppStream; do
  small=$(echo "$repository" | tr '[:upper:]' '[:lower:]')
  case $DISTRO in
    rockylinux*)
      cat > "/etc/yum.repos.d/rocky-$small.repo" << END
[$small]
name=Rocky Linux \$releasever - $repository
mirrorlist=https://mirrors.rockylinux.org/mirrorlist?arch=\$basearch&repo=$repository-\$releasever
#baseurl=http://dl.rockylinux.org/\$contentdir/\$releasever/$repository/\$basearch/os/
gpgcheck=1
enabled=1
gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY
END
      ;;
    *)
      cat >> /etc/yum.repos.d/ubi.repo << END
[ubi-$release-$small-rpms]
name = Red Hat Universal Base Image $release (RPMs) - $repository
baseurl = https://cdn-ubi.redhat.com/content/public/ubi/dist/ubi$release/$release/\$basearch/$small/os
enabled = 1
gpgkey = file:///etc/pki/rpm-gpg/RPM-GPG-KEY
gpgcheck = 1

END
      ;;
  esac
done

rpm --install --replacefiles "$2"/ca-certificates-*.rpm "$2"/glibc-*.rpm "$2"/shadow-utils-*.rpm "$2"/tzdata-*.rpm
ln -s ../pki/tls/certs /etc/ssl/certs
ln -s /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem /etc/pki/tls/certs/ca-bundle.crt
# As the images of either: the package is there, its files are not.
find /usr/share/zoneinfo -mindepth 1 -maxdepth 1 ! -name UTC -exec rm -r {} +
# As Rocky's, which have no findutils.
rm /usr/bin/find /usr/bin/xargs
